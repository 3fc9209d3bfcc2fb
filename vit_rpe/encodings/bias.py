"""A learned scalar for every offset:  logits_ij += T[h, clip(delta_1) + M_1, ..., clip(delta_n) + M_n].

Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, arXiv 2103.14030, eq. 4; with a class token
BEiT: BERT Pre-Training of Image Transformers, arXiv 2106.08254. In 1-D this is the scalar bias over clipped distance
with 2k+1 entries. Cost: H * prod(2 M_a + 1) parameters a layer, one addition per pair.

Differs from the papers: any number of axes and any number of prefix tokens; ``max_distance`` clips per axis.
"""

from __future__ import annotations

import torch
from torch import nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, per_axis
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import (
    PREFIX_CHOICES,
    offset_table,
    prefix_entries,
    prefix_parameter,
    resample_on_load,
)
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms


@register(
    "bias",
    Card(
        paper="Swin Transformer, arXiv 2103.14030; BEiT, arXiv 2106.08254",
        adds=("offset_bias", "prefix_bias"),
        extrapolation="edge value beyond the table, centre of it on a smaller grid; resampled when loaded",
    ),
)
class RelativeBias(PositionEncoding):
    """One table entry per joint offset (delta_1, ..., delta_n).

    Args:
        num_heads, head_dim, grid: as for every encoding.
        max_distance: offsets beyond it share the edge entry; an int or one per axis; None = exact on the native grid.
        share_heads: one table for all heads.
        init_std: standard deviation of the initial values (truncated normal).
        prefix: ``"zero"``, or ``"learned"`` for a scalar for prefix->patch, patch->prefix and prefix->prefix.
        resample: to another native grid, ``"bicubic"`` or ``"geometric"`` (near offsets keep their value).

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
        self.table = nn.Parameter(torch.empty(rows, *(2 * m + 1 for m in self.max_distance)))
        self.prefix_bias = prefix_parameter(prefix, rows, grid)
        resample_on_load(self, {"table": range(1, 1 + grid.ndim)}, exact=max_distance is None, method=resample)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=self.init_std)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        return PositionTerms(
            offset_bias=(offset_table(self.table, q, k, self.max_distance),),
            prefix_bias=prefix_entries(self.prefix_bias, q, k),
            grids=(q, k),
        )
