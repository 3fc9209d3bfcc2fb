"""EfficientViT-M: cascaded group attention in windows, in which every head reads what the head before it has found.

EfficientViT, arXiv 2305.07027. The last windows are padded, and padded tokens are attended to like others. Queries pass
a convolution over their window. A map's gradient counts what its head gives to the output, not what later heads make
of it.

Legend: B W windows of all samples, H heads, D width of queries and keys, E of values, h x w tokens of a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from timm.models import efficientvit_msra
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position, terms_of
from vit_rpe.models.families._distances import Distances, as_map
from vit_rpe.models.families._interface import Place, Sight
from vit_rpe.models.families._windows import cut
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.slicing import take_heads

Heads = tuple[Tensor, Tensor, Tensor]


class EfficientViT(Distances):
    """Windows as maps (B W, C, h, w)."""

    layers = (efficientvit_msra.CascadedGroupAttention,)
    channels = 1

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[-2:])

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        return TokenGrid((layer.resolution, layer.resolution))

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (self.native(layer, {}),) * 2

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        return None if place.image is None else cut(place.image, self.native(layer, {}).size)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        heads, _ = self.cascade(layer, inputs["x"], position, "auto")
        q, k, v = (torch.cat(parts, dim=1) for parts in zip(*heads, strict=True))
        grid = self.native(layer, {})

        def finish(attended: Tensor) -> Tensor:
            out: Tensor = layer.proj(as_map(attended, grid.size))
            return out

        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=grid, k_grid=grid)

    def run(
        self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position, attn_impl: str
    ) -> Tensor:
        """Every head once."""
        _, found = self.cascade(layer, inputs["x"], position, attn_impl)
        out: Tensor = layer.proj(torch.cat(found, dim=1))
        return out

    def cascade(self, layer: Any, x: Tensor, position: Position, impl: str) -> tuple[list[Heads], list[Tensor]]:
        """q, k (B W, 1, N, D) and v (B W, 1, N, E) of every head, and what it finds, (B W, E, h, w)."""
        terms, grid = terms_of(position), self.native(layer, {})
        heads: list[Heads] = []
        found: list[Tensor] = []
        for head, own in enumerate(x.chunk(layer.num_heads, dim=1)):
            mixed = own if head == 0 else own + found[-1]
            q, k, v = layer.qkvs[head](mixed).split([layer.key_dim, layer.key_dim, layer.val_dim], dim=1)
            q, k, v = (part.flatten(2).mT[:, None] for part in (layer.dws[head](q), k, v))
            part = take_heads(terms, head, head + 1)
            call = AttentionCall(q, k, v, part, None, layer.scale, lambda attended: attended, q_grid=grid, k_grid=grid)
            heads.append((q, k, v))
            found.append(as_map(call.attend(impl), grid.size))
        return heads, found
