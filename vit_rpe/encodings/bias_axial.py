"""A learned scalar per offset along each axis, summed:  logits_ij += sum_a T_a[h, clip(delta_a) + M_a].

The cheap form of the 2-D table of Swin (arXiv 2103.14030, eq. 4): sum_a (2 M_a + 1) entries a head instead of their
product, and a term that depends on one coordinate at a time. In 1-D it is the same as ``bias``.
"""

from __future__ import annotations

import torch
from torch import nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32, per_axis
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import (
    PREFIX_CHOICES,
    axis_entries,
    axis_sum,
    prefix_entries,
    prefix_parameter,
    resample_on_load,
)
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms


@register(
    "bias_axial",
    Card(
        paper="per-axis form of Swin Transformer, arXiv 2103.14030",
        adds=("offset_bias", "prefix_bias"),
        extrapolation="edge value beyond the table, centre of it on a smaller grid; resampled when loaded",
    ),
)
class AxialBias(PositionEncoding):
    """One table per axis; options as in ``bias``.

    Parameters are ``table_0`` ... ``table_{n-1}``, each (H, 2 M_a + 1), and ``prefix_bias`` (H, 3) where learned.

    Raises:
        ValueError: a bad ``max_distance``, ``prefix`` or ``resample``.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        max_distance: int | tuple[int, ...] | None = None,
        share_heads: bool = False,
        init_std: float = 0.02,
        prefix: str = "zero",
        resample: str = "bicubic",
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("prefix", prefix, PREFIX_CHOICES)
        self.max_distance = per_axis(max_distance, grid, name="max_distance")
        self.init_std = init_std
        rows = 1 if share_heads else num_heads
        for axis, distance in enumerate(self.max_distance):
            self.register_parameter(f"table_{axis}", nn.Parameter(torch.empty(rows, 2 * distance + 1)))
        self.prefix_bias = prefix_parameter(prefix, rows, grid)
        resample_on_load(
            self, {f"table_{axis}": (1,) for axis in range(grid.ndim)}, exact=max_distance is None, method=resample
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=self.init_std)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        tables = []
        for axis, distance in enumerate(self.max_distance):
            table = at_least_float32(getattr(self, f"table_{axis}"))
            tables.append(axis_entries(table, 1, q, k, axis, distance))
        prefix = prefix_entries(self.prefix_bias, q, k)
        return PositionTerms(offset_bias=(axis_sum(tables),), prefix_bias=prefix, grids=(q, k))
