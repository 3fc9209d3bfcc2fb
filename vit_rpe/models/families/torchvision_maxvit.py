"""torchvision's MaxViT: windows, and grids spread over the whole image, of one size.

Legend: B samples, W calls of one image, H heads, D head width, N tokens of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torchvision.models import maxvit

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Place, Sight
from vit_rpe.models.families._own import OwnPosition, flat_table
from vit_rpe.models.families._windows import cut, dilated
from vit_rpe.position.geometry import TokenGrid


class TorchvisionMaxViT(Family):
    """Tokens come as (B, W, N, C). The softmax scale is that of the whole width, not of a head."""

    layers = (maxvit.RelativePositionalMultiHeadAttention,)
    cuts_inside = True

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        return {"spread": _holder(around).partition_type == "grid"}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return _holder(around)

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[-2:])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        return (dilated if place.facts["spread"] else cut)(place.image, (layer.size, layer.size))

    def num_heads(self, layer: Any) -> int:
        return int(layer.n_heads)

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        window = (layer.size, layer.size)
        return OwnPosition("bias", TokenGrid(window), flat_table(layer.relative_position_bias_table, window))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        parts = layer.to_qkv(x).flatten(0, 1).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (layer.n_heads, -1)).transpose(1, 2) for part in parts)

        def finish(attended: Tensor) -> Tensor:
            out: Tensor = layer.merge(attended.transpose(1, 2).flatten(2).unflatten(0, x.shape[:2]))
            return out

        grid = TokenGrid((layer.size, layer.size))
        return AttentionCall(q, k, v, position, None, layer.scale_factor, finish, q_grid=grid, k_grid=grid)


def _holder(around: Sequence[nn.Module]) -> Any:
    return next(module for module in around if isinstance(module, maxvit.PartitionAttentionLayer))
