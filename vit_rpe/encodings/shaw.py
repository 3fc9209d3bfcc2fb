"""A learned vector for every clipped offset, met by the query and added to the value:

    logits_ij = s <q_i, k_j + a_K[clip(delta)]>,      output_i = sum_j A_ij (v_j + a_V[clip(delta)])

Self-Attention with Relative Position Representations, arXiv 1803.02155, eq. 3 and 4. Cost: one product of every query
with the 2k+1 vectors of an axis and a gather; the weights of one relation are summed before they meet its value vector.

Differs from the paper: offsets are query minus key (row r here is row 2k - r there), and on a grid with several axes a
pair has the sum of one vector per axis.
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
    clipped_index,
    draw_normal,
    prefix_entries,
    prefix_parameter,
    resample_on_load,
)
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms, RelativeVectors


@register(
    "shaw",
    Card(
        paper="Self-Attention with Relative Position Representations, arXiv 1803.02155",
        adds=("on_query", "on_value", "prefix_bias"),
        extrapolation="the vector of the edge beyond max_distance; resampled when loaded if max_distance='exact'",
    ),
)
class Shaw(PositionEncoding):
    """Relative vectors on queries (``key_0`` ... one an axis) and values (``value_0`` ...).

    Each is (1 or H, 2k+1, D).

    Args:
        num_heads, head_dim, grid: as for every encoding.
        max_distance: k, an int or one per axis; None = 16 in 1-D, 2 otherwise; ``"exact"`` = size - 1 of the native
            grid, the only choice that is resampled when weights of another native size are loaded.
        value: have the value vectors too.
        share_heads: the same vectors for all heads.
        init_std: standard deviation of the initial values (truncated normal).
        prefix: ``"zero"``, or ``"learned"`` for a scalar for prefix->patch, patch->prefix and prefix->prefix.
        resample: to another native grid, ``"bicubic"``, ``"linear"`` or ``"geometric"`` (near offsets keep theirs).

    Raises:
        ValueError: a bad ``max_distance``, ``prefix`` or ``resample``.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        max_distance: int | tuple[int, ...] | str | None = None,
        value: bool = True,
        share_heads: bool = True,
        init_std: float = 0.02,
        prefix: str = "zero",
        resample: str = "bicubic",
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("prefix", prefix, PREFIX_CHOICES)
        exact = isinstance(max_distance, str)
        if isinstance(max_distance, str):
            check_choice("max_distance", max_distance, ("exact",))
            max_distance = None
        elif max_distance is None:
            max_distance = 16 if grid.ndim == 1 else 2
        self.max_distance = per_axis(max_distance, grid, name="max_distance")
        self.value = value
        self.init_std = init_std
        rows = 1 if share_heads else num_heads
        sides = ("key", "value") if value else ("key",)
        names = [f"{side}_{axis}" for side in sides for axis in range(grid.ndim)]
        for name in names:
            length = 2 * self.max_distance[int(name[-1])] + 1
            self.register_parameter(name, nn.Parameter(torch.empty(rows, length, head_dim)))
        self.prefix_bias = prefix_parameter(prefix, num_heads, grid)
        resample_on_load(self, dict.fromkeys(names, (1,)), exact=exact, method=resample)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            draw_normal(parameter, self.init_std)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        on_query, on_value = [], []
        for axis, distance in enumerate(self.max_distance):
            table = at_least_float32(getattr(self, f"key_{axis}"))
            index = clipped_index(q, k, axis, distance, table.device)
            on_query.append(RelativeVectors(table, index, axis))
            if self.value:
                on_value.append(RelativeVectors(at_least_float32(getattr(self, f"value_{axis}")), index, axis))
        return PositionTerms(
            prefix_bias=prefix_entries(self.prefix_bias, q, k),
            on_query=tuple(on_query),
            on_value=tuple(on_value),
            grids=(q, k),
        )
