"""Samples of one batch that lie on different grids: each has the map of its own rotation."""

from __future__ import annotations

import torch
from timm.layers import RotaryEmbeddingCat
from timm.models.eva import EvaAttention
from torch import Tensor, nn
from torch.testing import assert_close

from vit_rpe import viz

DIM, HEADS = 24, 3


class Layer(nn.Module):
    """An attention layer with the rotation of two images, of 2 x 3 and of 3 x 2 patches."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = EvaAttention(DIM, HEADS, qkv_fused=True, num_prefix_tokens=0, norm_layer=nn.LayerNorm).eval()
        rotation = RotaryEmbeddingCat(DIM // HEADS, max_res=20, in_pixels=False)
        self.rope = torch.stack([rotation.get_embed([2, 3]), rotation.get_embed([3, 2])])[:, None]

    def forward(self, x: Tensor, samples: slice = slice(None)) -> Tensor:
        return self.attn(x, rope=self.rope[samples])


@torch.no_grad()
def test_every_sample_has_its_own_map() -> None:
    torch.manual_seed(1)
    layer, x = Layer(), 3 * torch.randn(1, 6, DIM).repeat(2, 1, 1)
    with viz.record(layer) as seen:
        layer(x)
    together = seen.attention(0)
    for number in range(2):
        one = slice(number, number + 1)
        with viz.record(layer) as seen:
            layer(x[one], one)
        assert_close(together[one], seen.attention(0))
    assert (together[1] - together[0]).abs().max() > 1e-3
