"""MaxViT and CoAtNet: windows, grids spread over the whole image, and the whole image, channels last or first.

MaxViT, arXiv 2204.01697; CoAtNet, arXiv 2106.04803.

Legend: B W calls of all samples, H heads, D head width, h x w tokens of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timm.models import maxxvit
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Place, Sight, whole_image
from vit_rpe.models.families._rel_pos import RelPosModule
from vit_rpe.models.families._windows import cut, dilated
from vit_rpe.position.geometry import TokenGrid


class RelativeAttention(RelPosModule):
    """What channels first and last have in common."""

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        return TokenGrid(tuple(layer.rel_pos.window_size))

    def head_width(self, layer: Any) -> int:
        return int(layer.dim_head)


class MaxViT(RelativeAttention):
    """Maps (B W, h, w, C) of windows, or of grids whose tokens lie far apart."""

    layers = (maxxvit.AttentionCl,)

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (TokenGrid(tuple(inputs["x"].shape[1:3])),) * 2

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        block: Any = around[0]
        parallel = isinstance(block, maxxvit.ParallelPartitionAttention)
        side_by_side = layer is block.attn_block if parallel else block.partition_block
        return {"side_by_side": bool(side_by_side)}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[1:3])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        parts = tuple(inputs["x"].shape[1:3])
        return cut(place.image, parts) if place.facts["side_by_side"] else dilated(place.image, parts)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        batch, height, width, _ = x.shape
        qkv = layer.qkv(x).reshape(batch, height * width, -1)
        if layer.head_first:
            q, k, v = qkv.unflatten(2, (layer.num_heads, -1)).transpose(1, 2).chunk(3, dim=3)
        else:
            q, k, v = qkv.unflatten(2, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.proj(attended.transpose(1, 2).reshape(batch, height, width, -1)))

        return _call(layer, q, k, v, position, finish, (height, width))


class CoAtNet(RelativeAttention):
    """Maps (B, C, h, w) of the whole image; also MaxViT's windows where a model keeps channels first."""

    layers = (maxxvit.Attention2d,)
    channels = 1

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (TokenGrid(tuple(inputs["x"].shape[-2:])),) * 2

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        block: Any = around[0]
        if isinstance(block, maxxvit.TransformerBlock2d):
            return {"side_by_side": None}
        return {"side_by_side": bool(block.partition_block)}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[-2:])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        parts = tuple(inputs["x"].shape[-2:])
        if place.facts["side_by_side"] is None:  # the block pools before its attention: all tokens are here
            return whole_image(parts)
        if place.image is None:
            return None
        return cut(place.image, parts) if place.facts["side_by_side"] else dilated(place.image, parts)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        height, width = x.shape[-2:]
        qkv = layer.qkv(x).flatten(2)
        if layer.head_first:
            q, k, v = qkv.unflatten(1, (layer.num_heads, -1)).transpose(2, 3).chunk(3, dim=3)
        else:
            q, k, v = qkv.unflatten(1, (3, layer.num_heads, -1)).transpose(3, 4).unbind(1)

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.proj(attended.mT.reshape(x.shape[0], -1, height, width)))

        return _call(layer, q, k, v, position, finish, (height, width))


def _call(
    layer: Any, q: Tensor, k: Tensor, v: Tensor, position: Position, finish: Any, size: tuple[int, int]
) -> AttentionCall:
    grid = TokenGrid(size)
    dropout_p = layer.attn_drop.p if layer.training else 0.0
    return AttentionCall(q, k, v, position, None, layer.scale, finish, dropout_p=dropout_p, q_grid=grid, k_grid=grid)
