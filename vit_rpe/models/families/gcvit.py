"""GCViT: windows side by side; in every second layer the queries come from the whole image, the same for all windows.

Global Context Vision Transformers, arXiv 2206.09959. Position is a table over offsets within the window.

Legend: B samples, W windows of one image, H heads, D head width, N tokens of a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timm.models import gcvit
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Place, Sight
from vit_rpe.models.families._windows import cut
from vit_rpe.models.families.maxvit import RelativeAttention
from vit_rpe.position.geometry import TokenGrid


class GCViT(RelativeAttention):
    """Windows (B W, N, C), and global queries (B, h, w, C), those of one window."""

    layers = (gcvit.WindowAttentionGlobal,)
    tokens = ("x", "q_global")
    reads_content = False

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[1:3])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        return None if place.image is None else cut(place.image, tuple(layer.window_size))

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (self.native(layer, {}),) * 2

    def head_width(self, layer: Any) -> int:
        return int(layer.head_dim)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        parts = layer.qkv(inputs["x"]).unflatten(2, (-1, layer.num_heads, layer.head_dim)).permute(2, 0, 3, 1, 4)
        k, v = parts[-2:].unbind(0)
        if layer.use_global:
            queries = inputs["q_global"].flatten(1, 2).unflatten(2, (layer.num_heads, -1)).transpose(1, 2)
            q = queries.repeat_interleave(len(k) // len(queries), dim=0)
        else:
            q = parts[0]

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.proj(attended.transpose(1, 2).flatten(2)))

        grid = TokenGrid(tuple(layer.window_size))
        dropout_p = layer.attn_drop.p if layer.training else 0.0
        return AttentionCall(
            q, k, v, position, None, layer.scale, finish, dropout_p=dropout_p, q_grid=grid, k_grid=grid
        )
