"""Hiera: mask units, later the whole image; where a stage begins, queries are the largest of 2 x 2. No own position.

Hiera: A Hierarchical Vision Transformer without the Bells-and-Whistles, arXiv 2306.00989. Tokens come in an order in
which those that will be pooled lie a whole sequence apart: the finest coordinate within a mask unit first, the mask
units last.

Legend: B samples, W windows of one image, H heads, D head width, N tokens of the image, T of a window, n axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import torch
from timm.models import hiera
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Place, Sight
from vit_rpe.models.families._windows import cut
from vit_rpe.position.geometry import TokenGrid

Size = tuple[int, ...]


@dataclass(frozen=True)
class Unrolled(Sight):
    """What a call sees, and how its tokens come.

    Attributes:
        strides: poolings still to come, the next one first: so the tokens of a window are ordered.
    """

    strides: tuple[Size, ...] = ()


class Hiera(Family):
    """Sequences (B, N, C) of an image of fixed size."""

    takes_position = True
    reads_content = False
    cuts_inside = True
    layers = (hiera.MaskUnitAttention,)

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        model: Any = next((each for each in around if isinstance(each, hiera.Hiera)), None)
        if model is None:
            return {}
        # what a block is given is laid out as what the one before it gave
        number = next(index for index, block in enumerate(model.blocks) if block is around[0])
        strides, size = model.reroll.schedule[max(number - 1, 0)]
        return {"image": tuple(size), "strides": tuple(map(tuple, strides))}

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if not place.facts or inputs["x"].shape[1] != prod(place.facts["image"]):  # mask units were dropped
            return None
        image = place.facts["image"]
        queries, keys = self.native_grids(layer, place.facts)
        return Unrolled(image, queries, keys, cut(image, keys.size).origins, strides=place.facts["strides"])

    def native_grids(self, layer: Any, facts: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        keys = self.native(layer, facts)
        if layer.q_stride == 1:
            return keys, keys
        by: Size = facts["strides"][0]
        size = tuple(side // step for side, step in zip(keys.size, by, strict=True))
        return TokenGrid(size, stride=by, extent=keys.size), keys

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        if not facts:
            raise ValueError("the size of the image is not known here: the attention stands in no Hiera")
        if not layer.use_mask_unit_attn:
            return TokenGrid(facts["image"])
        unit = tuple(prod(step[axis] for step in facts["strides"]) for axis in range(len(facts["image"])))
        if prod(unit) != layer.q_stride * layer.window_size:
            raise ValueError(f"mask units that are not {unit} tokens, what all stages together pool, are not described")
        return TokenGrid(unit)

    def num_heads(self, layer: Any) -> int:
        return int(layer.heads)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x, by = inputs["x"], layer.q_stride
        windows = x.shape[1] // (by * layer.window_size) if layer.use_mask_unit_attn else 1
        qkv = layer.qkv(x).unflatten(1, (-1, windows)).unflatten(-1, (3, layer.heads, -1))
        q, k, v = qkv.permute(3, 0, 2, 4, 1, 5).unbind(0)  # (B, W, H, T, D)
        q = q.unflatten(3, (by, -1)).amax(dim=3)
        back = None
        if isinstance(sight, Unrolled):
            order = row_major(sight.k_grid.size, sight.strides, x.device)
            k, v = k[..., order, :], v[..., order, :]
            order = row_major(sight.q_grid.size, sight.strides[by > 1 :], x.device)
            q, back = q[..., order, :], order.argsort()

        def finish(attended: Tensor) -> Tensor:
            if back is not None:
                attended = attended[:, :, back]
            tokens = attended.unflatten(0, (-1, windows)).permute(0, 3, 1, 2, 4)  # (B, T, W, H, D)
            return layer.proj(tokens.flatten(3).flatten(1, 2))

        q, k, v = (part.flatten(0, 1) for part in (q, k, v))
        grids = (None, None) if sight is None else (sight.q_grid, sight.k_grid)
        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=grids[0], k_grid=grids[1])


def row_major(size: Size, strides: tuple[Size, ...], device: torch.device) -> Tensor:
    """Where in their sequence the tokens of a grid are, in row-major order, int64 (T,)."""
    axes = len(size)
    coarse = tuple(side // prod(step[axis] for step in strides) for axis, side in enumerate(size))
    parts = (*strides, coarse)  # the sequence runs over all axes of the first, then of the second, the last is fastest
    index = torch.arange(prod(size), device=device).reshape(tuple(chain(*parts)))
    return index.permute([part * axes + axis for axis in range(axes) for part in reversed(range(len(parts)))]).flatten()
