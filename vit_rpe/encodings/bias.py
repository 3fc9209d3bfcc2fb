"""A learned scalar for every offset, of all axes together or per axis and summed:

    ``joint``:   logits_ij += T[h, clip(delta_1) + M_1, ..., clip(delta_n) + M_n]
    ``summed``:  logits_ij += sum_a T_a[h, clip(delta_a) + M_a]

Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, arXiv 2103.14030, eq. 4; with a class token
BEiT: BERT Pre-Training of Image Transformers, arXiv 2106.08254. In 1-D this is the scalar bias over clipped distance
with 2k+1 entries. Cost: H * prod(2 M_a + 1) parameters a layer, one addition per pair; ``summed`` is the cheap form,
sum_a (2 M_a + 1) entries a head and a term that depends on one coordinate at a time. In 1-D both are the same.

Differs from the papers: any number of axes and any number of prefix tokens; ``max_distance`` clips per axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32, per_axis
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._starts import STARTS, impulse_along
from vit_rpe.encodings._tables import (
    PREFIX_CHOICES,
    axis_entries,
    axis_sum,
    check_axes,
    draw_normal,
    offset_table,
    prefix_entries,
    prefix_parameter,
    resample_on_load,
)
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms

EXTRAPOLATION = "edge value beyond the table, centre of it on a smaller grid; resampled when loaded"


class _BiasTables(PositionEncoding):
    """One table ``table`` (H, 2 M_1 + 1, ..., 2 M_n + 1), or ``table_0`` ... one an axis, each (H, 2 M_a + 1), where
    summed; M + 1 instead of 2 M + 1 where symmetric; and ``prefix_bias`` (H, 3) where learned."""

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        axes: str,
        max_distance: int | tuple[int, ...] | None,
        symmetric: bool,
        share_heads: bool,
        init: str,
        init_std: float,
        strength: float,
        prefix: str,
        resample: str,
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("prefix", prefix, PREFIX_CHOICES)
        self.max_distance = per_axis(max_distance, grid, name="max_distance")
        _check_start(init, strength, symmetric)
        self.axes = axes
        self.symmetric = symmetric
        self.init = init
        self.init_std = init_std
        self.strength = strength
        rows = 1 if share_heads else num_heads
        lengths = [distance + 1 if symmetric else 2 * distance + 1 for distance in self.max_distance]
        if axes == "joint":
            self.table = nn.Parameter(torch.empty(rows, *lengths))
            over: dict[str, Sequence[int]] = {"table": range(1, 1 + grid.ndim)}
        else:
            over = {f"table_{axis}": range(1, 2) for axis in range(grid.ndim)}
            for name, length in zip(over, lengths, strict=True):
                self.register_parameter(name, nn.Parameter(torch.empty(rows, length)))
        self.prefix_bias = prefix_parameter(prefix, rows, grid)
        resample_on_load(self, over, exact=max_distance is None, method=resample, symmetric=symmetric)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            draw_normal(parameter, self.init_std)
        if self.init == "impulse":
            axes, far = self.grid.ndim, self.max_distance
            tables = [parameter for name, parameter in self.named_parameters() if name.startswith("table")]
            parts = [impulse_along(axis, len(tables[0]), axes, far[axis], self.strength) for axis in range(axes)]
            for table, start in zip(tables, [axis_sum(parts)] if self.axes == "joint" else parts, strict=True):
                table.copy_(start)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        return PositionTerms(
            offset_bias=(self._entries(q, k),), prefix_bias=prefix_entries(self.prefix_bias, q, k), grids=(q, k)
        )

    def _entries(self, q: TokenGrid, k: TokenGrid) -> Tensor:
        """The bias of all offsets that occur, (H, R_1, ..., R_n)."""
        if self.axes == "joint":
            return offset_table(self.table, q, k, self.max_distance, symmetric=self.symmetric)
        found = []
        for axis, distance in enumerate(self.max_distance):
            table = at_least_float32(getattr(self, f"table_{axis}"))
            found.append(axis_entries(table, 1, q, k, axis, distance, symmetric=self.symmetric))
        return axis_sum(found)


def _check_start(init: str, strength: float, symmetric: bool) -> None:
    check_choice("init", init, STARTS)
    if init == "normal" and strength != 1.0:
        raise ValueError(f"strength={strength!r} is that of init='impulse', got init={init!r}")
    if init == "impulse" and symmetric:
        raise ValueError("init='impulse' makes heads look one way, and symmetric=True has one entry for both ways")
    if not strength > 0:
        raise ValueError(f"strength must be positive, got {strength!r}")


@register(
    "bias",
    Card(
        paper="Swin Transformer, arXiv 2103.14030; BEiT, arXiv 2106.08254",
        adds=("offset_bias", "prefix_bias"),
        extrapolation=EXTRAPOLATION,
    ),
)
class RelativeBias(_BiasTables):
    """One table entry per joint offset (delta_1, ..., delta_n), or one per axis and their sum.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        axes: ``"joint"`` for one table over tuples of offsets, ``"summed"`` for one per axis; in 1-D ``"joint"``.
        max_distance: offsets beyond it share the edge entry; an int or one per axis; None = exact on the native grid.
        symmetric: one entry for an offset and its mirror images, abs(delta_a) along every axis.
        share_heads: one table for all heads.
        init: ``"normal"``, or ``"impulse"`` for heads that look at the token itself and at its neighbours.
        init_std: standard deviation of the initial values (truncated normal).
        strength: of the impulse: T[h, delta] = -strength norm(delta + c_h)^2.
        prefix: ``"zero"``, or ``"learned"`` for a scalar for prefix->patch, patch->prefix and prefix->prefix.
        resample: to another native grid, ``"bicubic"``, ``"linear"`` or ``"geometric"`` (near offsets keep theirs).

    Raises:
        ValueError: a bad ``axes``, ``max_distance``, ``init``, ``strength``, ``prefix`` or ``resample``; an impulse in
            a symmetric table, which would look both ways.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        axes: str = "joint",
        max_distance: int | tuple[int, ...] | None = None,
        symmetric: bool = False,
        share_heads: bool = False,
        init: str = "normal",
        init_std: float = 0.02,
        strength: float = 1.0,
        prefix: str = "zero",
        resample: str = "bicubic",
    ) -> None:
        check_axes(axes, grid, default="joint")
        super().__init__(
            num_heads,
            head_dim,
            grid,
            axes=axes,
            max_distance=max_distance,
            symmetric=symmetric,
            share_heads=share_heads,
            init=init,
            init_std=init_std,
            strength=strength,
            prefix=prefix,
            resample=resample,
        )


@register(
    "bias_axial",
    Card(
        paper="per-axis form of Swin Transformer, arXiv 2103.14030",
        adds=("offset_bias", "prefix_bias"),
        extrapolation=EXTRAPOLATION,
    ),
)
class AxialBias(_BiasTables):
    """``bias`` with ``axes="summed"`` under its older name, with the same other options; in 1-D too."""

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        max_distance: int | tuple[int, ...] | None = None,
        symmetric: bool = False,
        share_heads: bool = False,
        init: str = "normal",
        init_std: float = 0.02,
        strength: float = 1.0,
        prefix: str = "zero",
        resample: str = "bicubic",
    ) -> None:
        super().__init__(
            num_heads,
            head_dim,
            grid,
            axes="summed",
            max_distance=max_distance,
            symmetric=symmetric,
            share_heads=share_heads,
            init=init,
            init_std=init_std,
            strength=strength,
            prefix=prefix,
            resample=resample,
        )
