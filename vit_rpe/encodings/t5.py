"""A learned scalar per distance bucket:  logits_ij += sum_a T_a[h, bucket(key_a - query_a)].

Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, arXiv 1910.10683, section 2.1. Near
offsets have a bucket each, far ones share buckets that widen logarithmically up to ``max_distance``; all beyond share
the last. H * num_buckets parameters an axis, one addition a pair.

Differs from the paper: several axes (a sum, or one table over bucket tuples), prefix tokens, and the softmax keeps its
scale (T5 itself runs with scale 1). ``bidirectional=False`` puts every future key in bucket 0 and masks nothing.
"""

from __future__ import annotations

from math import floor, log

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_choice, warn_renamed
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import (
    PREFIX_CHOICES,
    axis_sum,
    check_axes,
    draw_normal,
    prefix_entries,
    prefix_parameter,
)
from vit_rpe.position.geometry import Device, TokenGrid, are_constants
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.offset_tables import offset_range
from vit_rpe.position.terms import PositionTerms


def t5_bucket(offset: int, num_buckets: int, max_distance: int, bidirectional: bool) -> int:
    """The bucket of one offset, **key minus query**, in 0 ... num_buckets - 1."""
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if offset > 0 else 0
        distance = abs(offset)
    else:
        first = 0
        distance = max(-offset, 0)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    share = log(distance / exact) / log(max_distance / exact)
    # The small term: a distance that reaches a bucket's lower edge exactly belongs to it, whatever log rounds to.
    return first + min(exact + floor(share * (num_buckets - exact) + 1e-9), num_buckets - 1)


def buckets_by_offset(num_buckets: int, max_distance: int, bidirectional: bool) -> tuple[int, ...]:
    """The bucket of every offset, query minus key, from -max_distance to max_distance."""
    return tuple(
        t5_bucket(-offset, num_buckets, max_distance, bidirectional)
        for offset in range(-max_distance, max_distance + 1)
    )


@once_per_forward
def buckets_between(
    q: TokenGrid, k: TokenGrid, axis: int, buckets: tuple[int, ...], max_distance: int, device: Device = None
) -> Tensor:
    """Bucket of every offset along one axis, int64 (R,), out of those of :func:`buckets_by_offset`."""
    low, count = offset_range(q, k, axis)
    if are_constants(low, count):
        held = (max(-max_distance, min(max_distance, offset)) for offset in range(low, low + count))
        return torch.tensor([buckets[offset + max_distance] for offset in held], device=device)
    offset = (torch.arange(count, device=device) + low).clamp(-max_distance, max_distance)
    return torch.tensor(buckets, device=device)[offset + max_distance]


@register(
    "t5",
    Card(
        paper="T5, arXiv 1910.10683",
        adds=("offset_bias", "prefix_bias"),
        extrapolation="defined for every offset; all beyond max_distance share a bucket",
    ),
)
class T5Bias(PositionEncoding):
    """Scalars over logarithmic buckets.

    Parameters are ``table_0`` ... ``table_{n-1}``, each (H, num_buckets), or ``table`` (H, num_buckets, ...,
    num_buckets) for ``axes="joint"``, and ``prefix_bias`` (H, 3) where learned.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        num_buckets: per axis; half of them for each direction if bidirectional.
        max_distance: offsets from here on share the last bucket.
        bidirectional: tell future keys from past ones; False puts every future key in bucket 0.
        axes: ``"summed"`` for one table per axis, ``"joint"`` for one over tuples of buckets; in 1-D ``"summed"``.
        share_heads: one table for all heads.
        init_std: standard deviation of the initial values (truncated normal).
        prefix: ``"zero"``, or ``"learned"`` for a scalar for prefix->patch, patch->prefix and prefix->prefix.

    Raises:
        ValueError: too few buckets, ``max_distance`` inside the exact ones, a bad ``axes`` or ``prefix``.
    """

    deprecated_options = frozenset({"joint"})

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        axes: str = "summed",
        joint: bool | None = None,
        share_heads: bool = False,
        init_std: float = 0.02,
        prefix: str = "zero",
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("prefix", prefix, PREFIX_CHOICES)
        _check_buckets(num_buckets, max_distance, bidirectional)
        axes = axes if joint is None else _axes_of(joint, axes)
        check_axes(axes, grid, default="summed")
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.buckets = buckets_by_offset(num_buckets, max_distance, bidirectional)
        self.axes = axes
        self.init_std = init_std
        rows = 1 if share_heads else num_heads
        if axes == "joint":
            self.table = nn.Parameter(torch.empty(rows, *(num_buckets,) * grid.ndim))
        else:
            for axis in range(grid.ndim):
                self.register_parameter(f"table_{axis}", nn.Parameter(torch.empty(rows, num_buckets)))
        self.prefix_bias = prefix_parameter(prefix, rows, grid)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            draw_normal(parameter, self.init_std)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        prefix = prefix_entries(self.prefix_bias, q, k)
        if self.axes == "joint":
            table = at_least_float32(self.table)
            for axis in range(q.ndim):
                table = table.index_select(1 + axis, self._buckets(q, k, axis, table.device))
            return PositionTerms(offset_bias=(table,), prefix_bias=prefix, grids=(q, k))
        tables = []
        for axis in range(q.ndim):
            table = at_least_float32(getattr(self, f"table_{axis}"))
            tables.append(table.index_select(1, self._buckets(q, k, axis, table.device)))
        return PositionTerms(offset_bias=(axis_sum(tables),), prefix_bias=prefix, grids=(q, k))

    def _buckets(self, q: TokenGrid, k: TokenGrid, axis: int, device: torch.device) -> Tensor:
        return buckets_between(q, k, axis, self.buckets, self.max_distance, device)


def _axes_of(joint: bool, axes: str) -> str:
    """What ``axes`` was called before: ``joint``, True or False."""
    if axes != "summed":
        raise ValueError(f"joint={joint!r} is the old name of axes: give axes={axes!r} alone")
    new = "joint" if joint else "summed"
    warn_renamed(f"joint={joint!r}", f"axes={new!r}", stacklevel=4)
    return new


def _check_buckets(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    if bidirectional and (num_buckets < 4 or num_buckets % 2 == 1):
        raise ValueError(f"num_buckets must be even and at least 4 if bidirectional, got {num_buckets}")
    if not bidirectional and num_buckets < 2:
        raise ValueError(f"num_buckets must be at least 2, got {num_buckets}")
    exact = num_buckets / (4 if bidirectional else 2)
    if max_distance <= exact:
        raise ValueError(
            f"max_distance must exceed {exact:g}, up to which {num_buckets} buckets are exact, got {max_distance}"
        )
