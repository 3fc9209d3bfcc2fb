"""A checkpoint from the first release: its parameter names load, and its logits stay, for as long as the package lives.

Written once by ``python -m tests.models.test_golden``; write it anew only when a change of names is meant.
"""

from __future__ import annotations

from pathlib import Path

import timm
import torch
from safetensors.torch import load_file, save_file

import vit_rpe  # noqa: F401  (registers the models)

FILE = Path(__file__).parents[1] / "golden" / "vit_rpe_custom.safetensors"
ARGS = {
    "img_size": (4, 6),
    "patch_size": 2,
    "embed_dim": 16,
    "depth": 2,
    "num_heads": 2,
    "num_classes": 3,
    "mlp_ratio": 1,
    "class_token": True,
    "reg_tokens": 1,
    "pos_embed": "learned",
    "init_values": 0.1,
    "rpe": [{"name": "bias", "prefix": "learned"}, "rope_mixed", "shaw"],
}


def build() -> torch.nn.Module:
    return timm.create_model("vit_rpe_custom", **ARGS).eval()


def test_old_weights_load_and_give_the_same_logits() -> None:
    stored = load_file(FILE)
    x, expected = stored.pop("images"), stored.pop("logits")
    model = build()
    assert set(model.state_dict()) == set(stored)
    model.load_state_dict(stored)
    torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-4)


if __name__ == "__main__":
    torch.manual_seed(0)
    golden = build()
    with torch.no_grad():
        for parameter in golden.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
        images = torch.randn(2, 3, 4, 6)
        save_file({**golden.state_dict(), "images": images, "logits": golden(images).contiguous()}, FILE)
