"""Features by the names of layers, through torchvision's tracer: it knows nothing of this package."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchvision.models.feature_extraction import create_feature_extractor

import vit_rpe
from tests.models.tiny import images, randomize, tiny

OPTIONS: dict[str, dict[str, Any]] = {
    "prefix": {"rpe": ["bias", "rope"], "class_token": True, "reg_tokens": 2, "pos_embed": "learned"},
    "shared": {"rpe": "bias", "rpe_shared": True, "window": 2},
    "masks": {"rpe": "alibi", "window": 2, "causal": True},
    "sincos": {"pos_embed": "sincos", "rpe": "none"},
    "attention_pool": {"global_pool": "map", "qk_norm": True},
    "dynamic": {"dynamic_img_size": True, "dynamic_img_pad": True},
    "dynamic_learned": {"dynamic_img_size": True, "pos_embed": "learned", "class_token": True},
    "patch_dropout": {"patch_drop_rate": 0.5, "class_token": True},
    "conditional": {"pos_embed": "conditional", "dynamic_img_size": True, "patch_drop_rate": 0.5, "reg_tokens": 1},
}
for _name in vit_rpe.list_encodings():
    OPTIONS[_name] = {"rpe": _name}


@pytest.mark.parametrize("options", OPTIONS)
def test_every_option(options: str) -> None:
    model = randomize(tiny(**OPTIONS[options]))
    taps = create_feature_extractor(model, {"blocks.0.attn": "attention", "blocks.0": "first", "norm": "last"})
    x = images()
    found = taps(x)
    (first,) = model.forward_intermediates(x, [0], output_fmt="NLC", intermediates_only=True)
    torch.testing.assert_close(found["first"][:, model.num_prefix_tokens :], first)
    torch.testing.assert_close(found["last"], model.forward_features(x))
    assert found["attention"].shape == found["first"].shape
    if model.dynamic_img_size:
        x = images((12, 10))
        torch.testing.assert_close(taps(x)["last"], model.forward_features(x))
    taps.train()(images())["last"].sum().backward()
    assert all(block.attn.qkv.weight.grad is not None for block in model.blocks)
