"""A penalty linear in distance, with a fixed slope per head:  logits_ij += -m_h norm(delta_ij).

Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation, arXiv 2108.12409; in 2-D with
the Euclidean distance, CROMA, arXiv 2311.00566. No parameters (``learned=True``: one slope a head); one addition per
pair. Differs from the paper: symmetric (mask the future with ``causal``), any number of axes, choice of metric.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import occurring_offsets
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms

METRICS = ("l2", "l1", "linf")


def alibi_slopes(num_heads: int) -> list[float]:
    """The published slopes: 2^(-8 h / H) for H a power of two, else those of the power below and every other one of
    the power above."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    above = [2.0 ** (-8.0 * (head + 1) / (2 * power)) for head in range(2 * power)]
    return slopes + above[0::2][: num_heads - power]


def offset_distance(q: TokenGrid, k: TokenGrid, metric: str, device: Device = None) -> Tensor:
    """Distance of every offset that occurs between two grids, by the norm ``metric``: float32 (R_1, ..., R_n)."""
    total = torch.zeros((), device=device)
    for axis in range(q.ndim):
        delta = occurring_offsets(q, k, axis, device).float()
        if metric == "l2":
            total = total[..., None] + delta.square()
        elif metric == "l1":
            total = total[..., None] + delta.abs()
        else:
            total = torch.maximum(total[..., None], delta.abs())
    return total.sqrt() if metric == "l2" else total


@register(
    "alibi",
    Card(
        paper="ALiBi, arXiv 2108.12409; 2-D: CROMA, arXiv 2311.00566",
        adds=("offset_bias",),
        extrapolation="defined for every offset",
        additive=False,
    ),
)
class Alibi(PositionEncoding):
    """Fixed (or learned) slope times distance.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        metric: ``"l2"``, ``"l1"`` or ``"linf"`` over the axes.
        learned: train the slopes, starting from the published ones.

    Raises:
        ValueError: an unknown ``metric``, or another than the default in 1-D, where all are the same.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        metric: str = "l2",
        learned: bool = False,
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("metric", metric, METRICS)
        if metric != "l2" and grid.ndim == 1:
            raise ValueError(
                f"metric={metric!r} needs a grid of several axes, got {grid.size}: in 1-D all are the same"
            )
        self.metric = metric
        self.slopes = nn.Parameter(torch.empty(num_heads)) if learned else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        if self.slopes is not None:
            self.slopes.copy_(torch.tensor(alibi_slopes(self.num_heads)))

    @torch.no_grad()
    def zero_(self) -> None:
        """Make the encoding add nothing.

        Raises:
            ValueError: the slopes are fixed.
        """
        if self.slopes is None:
            raise ValueError("alibi has fixed slopes and always adds them; use learned=True to start from none")
        self.slopes.zero_()

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        if self.slopes is None:
            slopes = torch.tensor(alibi_slopes(self.num_heads), device=device)
        else:
            slopes = at_least_float32(self.slopes)
        distance = offset_distance(q, k, self.metric, slopes.device)
        table = -slopes.view(-1, *(1,) * q.ndim) * distance
        return PositionTerms(offset_bias=(table,), grids=(q, k))
