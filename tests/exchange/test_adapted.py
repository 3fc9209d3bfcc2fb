"""Models whose layers are wrapped already, in modules without ``weight`` and sizes."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import Tensor, nn

import vit_rpe


class Doubled(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.layer(x)


@pytest.mark.parametrize("name", ["patch_embed.proj", "blocks.0.attn.qkv", "blocks.0.attn.proj", "blocks.0.mlp.fc1"])
def test_add_rpe_keeps_wrapped_layers(name: str) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1).eval()
    x = torch.randn(1, 3, 32, 32)
    model.set_submodule(name, Doubled(model.get_submodule(name)))
    expected = model(x)
    vit_rpe.add_rpe(model, "bias")
    torch.testing.assert_close(model(x), expected)


def test_our_own_patch_embedding_may_be_wrapped() -> None:
    torch.manual_seed(0)
    model = vit_rpe.VisionTransformer(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2).eval()
    x = torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        expected = 2 * model.patch_embed(x)
        model.patch_embed.proj = Doubled(model.patch_embed.proj)
        torch.testing.assert_close(model.patch_embed(x), expected)
