"""Vectors (or scalars) for buckets of the offset, on keys, queries or values:

    on "k":  logits_ij += s <q_i, p[b(delta)]>
    on "q":  logits_ij += s <k_j, p[b(delta)]>
    on "v":  output_i += sum_j A_ij p[b(delta)]

Rethinking and Improving Relative Position Encoding for Vision Transformer (iRPE), arXiv 2107.14222, eq. 14-24. The
piecewise index (eq. 18) with alpha : beta : gamma = 1 : 2 : 8 times ``ratio`` is exact near 0 and logarithmic farther:

    g(x) = x for |x| <= alpha, else sign(x) int(min(beta, round(y))),
    y = alpha + ln(|x| / alpha) / ln(gamma / alpha) (beta - alpha)

``product``: b = (g(dh), g(dw)); ``cross``: two tables, g(dh) and g(dw), summed; ``euclidean``: g(round(norm(delta)));
``quantization``: g(dh^2 + dw^2) as in the released code. With other axes alike: one index or one table an axis. Every
pair with a prefix token has one bucket more. Cost: buckets of the distinct offsets, one product with their vectors (50
by default) and a gather.

Differs from the released code: any number of axes; all three sides are indexed by query minus key (files of side "q"
are key minus query), ``euclidean`` and ``quantization`` hold the half of the rows that can occur (row r here is row
beta + r there), and a grid without prefix tokens has no extra bucket.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import distinct_offsets, prefix_entries
from vit_rpe.position.geometry import Device, TokenGrid, axis_offsets
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.offset_tables import spread
from vit_rpe.position.terms import AxisBias, PositionTerms, RelativeVectors, pad_prefix

METHODS = ("product", "cross", "euclidean", "quantization")
MODES = ("contextual", "bias")
SIDES = ("q", "k", "v")


def piecewise(distance: int, ratio: float) -> int:
    """g of a distance >= 0."""
    alpha, beta, gamma = ratio, 2 * ratio, 8 * ratio
    if distance <= alpha:
        return distance
    far = round(alpha + math.log(distance / alpha) / math.log(gamma / alpha) * (beta - alpha))
    return int(min(beta, far))


def level_starts(ratio: float) -> list[int]:
    """The smallest distance that reaches level 1, 2 ... int(beta) of g, which never falls."""
    starts, distance = [], 0
    for level in range(1, int(2 * ratio) + 1):
        while piecewise(distance, ratio) < level:
            distance += 1
        starts.append(distance)
    return starts


def count_reached(values: Tensor, starts: Sequence[int]) -> Tensor:
    """How many of the starts each integer has reached: g by comparisons, the same on every device."""
    level = torch.zeros_like(values)
    for start in starts:
        level = level + (values >= start)
    return level


def level_of(delta: Tensor, starts: Sequence[int]) -> Tensor:
    """g(delta), counted from 0, for int64 offsets of any shape."""
    return delta.sign() * count_reached(delta.abs(), starts) + len(starts)


@once_per_forward
def level_of_pairs(q: TokenGrid, k: TokenGrid, axis: int, starts: tuple[int, ...], device: Device = None) -> Tensor:
    """The level of every pair of coordinates along one axis, int64 (Sq, Sk)."""
    return level_of(axis_offsets(q, k, axis, device), starts)


@once_per_forward
def joint_bucket(q: TokenGrid, k: TokenGrid, method: str, starts: tuple[int, ...], device: Device = None) -> Tensor:
    """The bucket of every offset that occurs, for the methods that mix the axes, int64 (R_1, ..., R_n)."""
    offsets = [distinct_offsets(q, k, axis, device)[0] for axis in range(q.ndim)]
    if method == "product":
        levels = 2 * len(starts) + 1
        return reduce(lambda rows, delta: rows[..., None] * levels + level_of(delta, starts), offsets, _nothing(device))
    squared = reduce(lambda total, delta: total[..., None] + delta.square(), offsets, _nothing(device))
    # round(sqrt(x)) >= t is x > t (t - 1) for integers: no root is taken, and none is rounded wrongly.
    return count_reached(squared, [t * (t - 1) + 1 if method == "euclidean" else t for t in starts])


def _nothing(device: Device) -> Tensor:
    return torch.zeros((), dtype=torch.int64, device=device)


@once_per_forward
def bucket_of_pairs(bucket: Tensor, q: TokenGrid, k: TokenGrid, of_prefix: int) -> Tensor:
    """The bucket of every pair of tokens, int64 (Nq, Nk), from those of the offsets."""
    return pad_prefix(spread(bucket[None], q, k)[0], q, k, value=of_prefix)


@register(
    "irpe",
    Card(
        paper="Rethinking and Improving Relative Position Encoding for Vision Transformer, arXiv 2107.14222",
        adds=("offset_bias", "axis_bias", "prefix_bias", "on_query", "on_key", "on_value"),
        extrapolation="the outermost bucket, which is open-ended",
        per_pair=True,
    ),
)
class IRPE(PositionEncoding):
    """Parameters ``table_k``, ``table_q``, ``table_v`` as ``on`` says, (buckets + 1, D) shared by the heads, or
    ``table`` (H, buckets + 1) for a bias; with ``cross`` one of each for every axis (``_h``, ``_w``, in 3-D also
    ``_t``). The last bucket is that of prefix tokens, and exists only if the native grid has some.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        method: ``"product"``, ``"cross"``, ``"euclidean"`` or ``"quantization"``.
        mode: ``"contextual"`` (vectors) or ``"bias"`` (a scalar per head).
        on: what the vectors meet, a subset of ``("q", "k", "v")``; a bias is the same on every side: ``("k",)``.
        ratio: scale of alpha, beta and gamma; at least 0.5, where everything but offset 0 is one level.

    Raises:
        ValueError: an unknown method, mode or side, none or one twice, a bias on another side, a small ratio, or
            ``"cross"`` in 1-D.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        method: str = "product",
        mode: str = "contextual",
        on: tuple[str, ...] = ("k",),
        ratio: float = 1.9,
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("method", method, METHODS)
        check_choice("mode", mode, MODES)
        if isinstance(on, str):
            raise ValueError(f"on must be a tuple such as ('q', 'k', 'v'), got {on!r}")
        for side in on:
            check_choice("on", side, SIDES)
        if len(on) == 0 or len(set(on)) != len(on):
            raise ValueError(f"on must name some of {SIDES}, each once, got {on!r}")
        if mode == "bias" and tuple(on) != ("k",):
            raise ValueError(f"mode='bias' is the same on queries and keys: leave on=('k',), got {on!r}")
        if not 0.5 <= ratio < math.inf:
            raise ValueError(f"ratio must be finite and at least 0.5, got {ratio!r}")
        self.method = method
        self.mode = mode
        self.on = tuple(on)
        self.starts = tuple(level_starts(ratio))
        self.levels = 2 * len(self.starts) + 1
        if method == "cross" and grid.ndim == 1:
            raise ValueError(f"method='cross' has a table for each axis: in 1-D, got {grid.size}, it is 'product'")
        directed = {"product": self.levels**grid.ndim, "cross": self.levels}
        self.buckets = directed.get(method, len(self.starts) + 1)
        self.has_prefix_bucket = grid.num_prefix > 0
        rows = self.buckets + int(self.has_prefix_bucket)
        shape = (rows, head_dim) if mode == "contextual" else (num_heads, rows)
        for name in self._names():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        tables = {name: at_least_float32(getattr(self, name)) for name in self._names()}
        device = next(iter(tables.values())).device
        if self.method == "cross":
            return self._cross(q, k, tables, device)
        bucket = joint_bucket(q, k, self.method, self.starts, device)
        if self.mode == "bias":
            table = tables["table"].index_select(1, bucket.flatten()).unflatten(1, bucket.shape)
            prefix = prefix_entries(self._prefix_entries(tables["table"]), q, k)
            return PositionTerms(offset_bias=(table,), prefix_bias=prefix, grids=(q, k))
        index = bucket_of_pairs(bucket, q, k, self.buckets if self.has_prefix_bucket else -1)
        return _on_sides({side: (RelativeVectors(tables[f"table_{side}"][None], index),) for side in self.on}, q, k)

    def _names(self) -> list[str]:
        names = ["table"] if self.mode == "bias" else [f"table_{side}" for side in self.on]
        return [f"{name}_{axis}" for name in names for axis in self._letters()] if self.method == "cross" else names

    def _letters(self) -> str:
        return "thw"[3 - self.grid.ndim :]

    def _cross(self, q: TokenGrid, k: TokenGrid, tables: dict[str, Tensor], device: Device) -> PositionTerms:
        """Every axis apart; what pairs with a prefix token have is dense."""
        levels = [level_of_pairs(q, k, axis, self.starts, device) for axis in range(q.ndim)]
        if self.mode == "bias":
            own = [tables[f"table_{letter}"] for letter in self._letters()]
            biases = tuple(
                AxisBias(table.index_select(1, level.flatten()).unflatten(1, level.shape), axis)
                for axis, (table, level) in enumerate(zip(own, levels, strict=True))
            )
            prefix = prefix_entries(self._prefix_entries(sum(own[1:], start=own[0])), q, k)
            return PositionTerms(axis_bias=biases, prefix_bias=prefix, grids=(q, k))
        sides: dict[str, tuple[RelativeVectors, ...]] = {}
        for side in self.on:
            own = [tables[f"table_{side}_{letter}"][None] for letter in self._letters()]  # (1, buckets + 1, D) each
            parts = zip(own, levels, strict=True)
            sides[side] = tuple(RelativeVectors(table, level, axis) for axis, (table, level) in enumerate(parts))
            if self.has_prefix_bucket and q.num_prefix + k.num_prefix > 0:
                no_pair = torch.full((q.num_patches, k.num_patches), -1, device=device)
                only_prefix = pad_prefix(no_pair, q, k, value=0)
                sides[side] += (RelativeVectors(sum(own[1:], start=own[0])[:, -1:], only_prefix),)
        return _on_sides(sides, q, k)

    def _prefix_entries(self, table: Tensor) -> Tensor | None:
        """The last bucket of (H, buckets + 1) in the layout of a learned prefix, (H, 3); None without that bucket."""
        return table[:, -1:].expand(-1, 3) if self.has_prefix_bucket else None


def _on_sides(sides: Mapping[str, tuple[RelativeVectors, ...]], q: TokenGrid, k: TokenGrid) -> PositionTerms:
    return PositionTerms(
        on_query=sides.get("k", ()),
        on_key=sides.get("q", ()),
        on_value=sides.get("v", ()),
        grids=(q, k),
    )
