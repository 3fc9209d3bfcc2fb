"""Tables over distances per axis, without a sign, and values wider than keys: what LeViT began and others took over.

The bias of a pair is T[h, abs(dh), abs(dw)], kept flat and row-major.

Legend: B W calls of all samples, H heads, D width of queries and keys, E of values, N tokens of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vit_rpe.models.families._interface import Family
from vit_rpe.models.families._own import OwnPosition
from vit_rpe.position.geometry import TokenGrid

SYMMETRIC = {"name": "bias", "symmetric": True}


class Distances(Family):
    """A table for a grid of ``resolution`` tokens, said by ``bias`` with one entry for both signs."""

    takes_position = True
    reads_content = False
    position_names = ("attention_biases", "attention_bias_idxs")

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        return TokenGrid(tuple(layer.resolution))

    def head_width(self, layer: Any) -> int:
        return int(layer.key_dim)

    def value_width(self, layer: Any) -> int:
        return int(layer.val_dim)

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        weights = self.translate(layer, {"attention_biases": layer.attention_biases})
        return OwnPosition(SYMMETRIC, self.native(layer, facts), weights)

    def translate(self, layer: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        table = weights.get("attention_biases")
        return {} if table is None else {"table": table.unflatten(1, self.native(layer, {}).size)}

    def remains(self, layer: Any) -> Mapping[str, Any]:
        return {"attention_bias_cache": {}}


def split_heads(projected: Tensor, num_heads: int, widths: list[int]) -> list[Tensor]:
    """(B, N, H sum) as heads (B, H, N, width) of each width."""
    return list(projected.unflatten(2, (num_heads, -1)).transpose(1, 2).split(widths, dim=3))


def split_maps(projected: Tensor, num_heads: int, widths: list[int]) -> list[Tensor]:
    """(B, H sum, h, w) likewise."""
    return list(projected.flatten(2).unflatten(1, (num_heads, -1)).mT.split(widths, dim=3))


def as_map(attended: Tensor, size: tuple[int, ...]) -> Tensor:
    """Heads (B, H, N, E) as channels (B, H E, h, w)."""
    return attended.mT.flatten(1, 2).unflatten(2, size)
