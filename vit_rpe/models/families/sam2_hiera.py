"""The image encoder of Segment Anything 2: windows or the whole image, queries pooled where a stage ends.

SAM 2, arXiv 2408.00714; Hiera, arXiv 2306.00989. The last windows are padded.

Legend: B W windows of all samples, H heads, D head width, h x w tokens of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timm.models import hieradet_sam2
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Place, Sight, whole_image
from vit_rpe.models.families._windows import cut
from vit_rpe.position.geometry import TokenGrid


class Sam2Hiera(Family):
    """Tokens come as maps (B W, h, w, C)."""

    layers = (hieradet_sam2.MultiScaleAttention,)

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        block: Any = around[0]
        return {"window": tuple(block.window_size), "stride": tuple(block.q_stride or (1, 1))}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[1:3])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        window, stride = place.facts["window"], place.facts["stride"]
        seen = cut(place.image, window) if any(window) else whole_image(place.image)
        queries = TokenGrid(
            tuple(side // by for side, by in zip(seen.k_grid.size, stride, strict=True)),
            stride=stride if any(by > 1 for by in stride) else None,
        )
        return Sight(place.image, queries, seen.k_grid, seen.origins)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        qkv = layer.qkv(x).unflatten(-1, (3, layer.num_heads, -1))  # (B W, h, w, 3, H, D)
        q, k, v = qkv.permute(3, 0, 4, 1, 2, 5).unbind(0)
        if layer.q_pool is not None:
            q = layer.q_pool(q.flatten(0, 1).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).unflatten(0, q.shape[:2])
        size = q.shape[2:4]

        def finish(attended: Tensor) -> Tensor:
            return layer.proj(attended.transpose(1, 2).flatten(2).unflatten(1, size))

        q, k, v = (part.flatten(2, 3) for part in (q, k, v))
        grids = (None, None) if sight is None else (sight.q_grid, sight.k_grid)
        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=grids[0], k_grid=grids[1])
