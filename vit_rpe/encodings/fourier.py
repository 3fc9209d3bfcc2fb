"""A learned Fourier series of the offset along each axis, summed:

    logits_ij += sum_a sum_r [ lc_{a,h,r} cos(w_r delta_a) + ls_{a,h,r} sin(w_r delta_a) ],   w_r = base^(-r / (R - 1))

GOAT, arXiv 2601.15380: position as a shift-invariant prior of the attention, written as a trigonometric series.
2 R H parameters an axis; R waves at the offsets of an axis, and one addition a pair.

Differs from the paper: every axis has all R frequencies (there the first half belongs to rows, the second to columns),
and there is no sink.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_count
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import axis_sum, occurring_offsets
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.terms import PositionTerms


@once_per_forward
def waves(q: TokenGrid, k: TokenGrid, axis: int, terms: int, base: float, device: Device) -> Tensor:
    """cos, then sin, of every frequency at every offset that occurs along one axis, float32 (R_a, 2 R)."""
    steps = torch.arange(terms, device=device, dtype=torch.float32)
    angles = occurring_offsets(q, k, axis, device)[:, None] * base ** (-steps / max(terms - 1, 1))
    return torch.cat([angles.cos(), angles.sin()], dim=1)


@register(
    "fourier",
    Card(paper="GOAT, arXiv 2601.15380", adds=("offset_bias",), extrapolation="defined for every offset"),
)
class Fourier(PositionEncoding):
    """Parameters ``cosine`` and ``sine``, each (n, H, R).

    Args:
        num_heads, head_dim, grid: as for every encoding.
        terms: R, the number of frequencies.
        base: ratio of the fastest frequency, one radian a token, to the slowest.

    Raises:
        ValueError: ``terms`` below 1, ``base`` not positive or, with one term, another than the default.
    """

    def __init__(
        self, num_heads: int, head_dim: int, grid: TokenGrid, *, terms: int = 16, base: float = 10000.0
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_count("terms", terms)
        if not base > 0:
            raise ValueError(f"base must be positive, got {base!r}")
        if terms == 1 and base != 10000.0:
            raise ValueError(f"terms=1 is the frequency 1 alone: base={base!r} has no effect, leave it out")
        self.terms = terms
        self.base = base
        self.cosine = nn.Parameter(torch.empty(grid.ndim, num_heads, terms))
        self.sine = nn.Parameter(torch.empty(grid.ndim, num_heads, terms))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.cosine, std=0.01)
        nn.init.zeros_(self.sine)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        cosine, sine = (
            at_least_float32(self.cosine)[:, :, None],
            at_least_float32(self.sine)[:, :, None],
        )  # (n, H, 1, R)
        tables = []
        for axis in range(q.ndim):
            of_cosine, of_sine = waves(q, k, axis, self.terms, self.base, cosine.device).to(cosine.dtype).chunk(2, -1)
            # sums of products, not matrix products: autocast leaves those alone
            tables.append((cosine[axis] * of_cosine + sine[axis] * of_sine).sum(-1))  # (H, R_a)
        return PositionTerms(offset_bias=(axis_sum(tables),), grids=(q, k))
