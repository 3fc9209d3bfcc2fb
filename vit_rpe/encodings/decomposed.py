"""A learned vector per offset along each axis, met by the query without the softmax scale:

    logits_ij = s q_i.k_j + q_i . sum_a R_a[delta_a]

MViTv2: Improved Multiscale Vision Transformers for Classification and Detection, arXiv 2112.01526, eq. 4 and 5; used
by Segment Anything, arXiv 2304.02643. Cost: one product of every query with 2 size_a - 1 vectors an axis; the term
depends on one coordinate of the key at a time.

The query is not scaled in this term; the table handed on carries sqrt(D), which is right for the scale s = D^-0.5.
Pooled keys or queries (a stride on their grid) follow MViTv2: coordinates are multiplied by the ratio of the strides,
and distance 0 is row (k_size - 1) * k_ratio, which is not the middle of the table when keys are pooled.

Differs from the papers: any number of axes; the ratio comes from the strides, not from the sizes; tables are resampled
(bicubic) when loaded at another native size, never in the forward pass, which saturates at their ends.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import torch
from torch import Tensor, nn

from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import draw_normal, resample_on_load
from vit_rpe.position.geometry import Device, TokenGrid, axis_offsets
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.terms import PositionTerms, RelativeVectors


@once_per_forward
def pooled_rows(q: TokenGrid, k: TokenGrid, axis: int, size: int, device: Device = None) -> Tensor:
    """Table row of every pair along one axis, int64 (Sq, Sk).

    Args:
        size: native length of the axis, of the finer of the two grids; the table has 2 size - 1 rows.
    """
    unit = math.gcd(q.steps[axis], k.steps[axis])
    ratio = k.steps[axis] // unit
    zero = (size - 1) // ratio * ratio  # (k_size - 1) * k_ratio, the same for a window and for the whole key grid
    return (axis_offsets(q, k, axis, device) // unit + zero).clamp(0, 2 * size - 2)


@register(
    "decomposed",
    Card(
        paper="MViTv2, arXiv 2112.01526; Segment Anything, arXiv 2304.02643",
        adds=("on_query",),
        extrapolation="the vector of the edge beyond the table, its centre on a smaller grid; resampled when loaded",
    ),
)
class Decomposed(PositionEncoding):
    """Parameters ``table_0`` ... one an axis, each (2 size_a - 1, D), shared by the heads.

    Args:
        num_heads, head_dim, grid: as for every encoding; ``grid`` is the finer one where q or k are pooled.
        init_std: standard deviation of the initial values (truncated normal), 0 = zeros as in Segment Anything.
        resample: to another native grid, ``"bicubic"``, ``"linear"`` (as Segment Anything) or ``"geometric"`` (near
            offsets keep their value).
    """

    absent_options = MappingProxyType(
        {"init": "its vectors meet the content of the query, so that no start of them looks anywhere"}
    )

    def __init__(
        self, num_heads: int, head_dim: int, grid: TokenGrid, *, init_std: float = 0.0, resample: str = "bicubic"
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        self.init_std = init_std
        for axis, size in enumerate(grid.size):
            self.register_parameter(f"table_{axis}", nn.Parameter(torch.empty(2 * size - 1, head_dim)))
        resample_on_load(self, {f"table_{axis}": (0,) for axis in range(grid.ndim)}, exact=True, method=resample)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            draw_normal(parameter, self.init_std)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        parts = []
        for axis, size in enumerate(self.grid.size):
            table = at_least_float32(getattr(self, f"table_{axis}")) * self.head_dim**0.5
            index = pooled_rows(q, k, axis, size, table.device)
            parts.append(RelativeVectors(table[None], index, axis))
        return PositionTerms(on_query=tuple(parts), grids=(q, k))
