"""Twins: windows that the layer cuts itself, and the whole image with keys pooled by a convolution.

arXiv 2104.13840. Windows are not shifted; padded tokens are attended to like others.

Legend: B samples, W windows of one image, H heads, D head width, N tokens of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timm.models import twins
from torch import Tensor

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Place, Sight
from vit_rpe.models.families._windows import cut, partition, unpartition
from vit_rpe.position.geometry import TokenGrid


class TwinsWindows(Family):
    """Locally grouped attention."""

    layers = (twins.LocallyGroupedAttn,)
    cuts_inside = True

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight:
        return cut(tuple(inputs["size"]), (layer.ws, layer.ws))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        image, window = tuple(inputs["size"]), (layer.ws, layer.ws)
        x = partition(inputs["x"].unflatten(1, image), window)
        q, k, v = layer.qkv(x).unflatten(-1, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

        def finish(attended: Tensor) -> Tensor:
            out = unpartition(attended.transpose(1, 2).flatten(2), image, window).flatten(1, 2)
            return layer.proj_drop(layer.proj(out))

        grid = TokenGrid(window)
        dropout_p = layer.attn_drop.p if layer.training else 0.0
        return AttentionCall(
            q, k, v, position, None, layer.scale, finish, dropout_p=dropout_p, q_grid=grid, k_grid=grid
        )


class TwinsPooled(Family):
    """Global attention to one key for each ``sr_ratio`` x ``sr_ratio`` tokens; what is left over has none."""

    layers = (twins.GlobalSubSampleAttn,)

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight:
        image = tuple(inputs["size"])
        by = layer.sr_ratio
        keys = TokenGrid(tuple(side // by for side in image), stride=(by, by) if by > 1 else None)
        return Sight(image, TokenGrid(image), keys, ((0, 0),))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        q = layer.q(x).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
        if layer.sr is not None:
            x = layer.norm(layer.sr(x.mT.unflatten(2, tuple(inputs["size"]))).flatten(2).mT)
        k, v = layer.kv(x).unflatten(-1, (2, layer.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.proj(attended.transpose(1, 2).flatten(2)))

        assert sight is not None
        dropout_p = layer.attn_drop.p if layer.training else 0.0
        return AttentionCall(
            *(q, k, v, position, None, layer.scale, finish),
            dropout_p=dropout_p,
            q_grid=sight.q_grid,
            k_grid=sight.k_grid,
        )
