"""A learned penalty that grows slowly with distance, a conditionally positive definite kernel.

    ``log``:    logits_ij -= r1_h ln(1 + r2_h d_ij)
    ``power``:  logits_ij -= r1_h d_ij ^ r2_h,                d = Euclidean norm of the offset

KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, arXiv 2205.09921, eq. 2 and 3. Two scalars a
head; r1, r2 >= 0.01, and r2 <= 2 for ``power``. One addition a pair; the kernel is evaluated once per distinct offset.

Differs from the paper: any number of axes. The released code overwrites a parameter that left its range; here the value
is clipped where it is used and the gradient passes as if it were not, so that a parameter can come back.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import occurring_offsets
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms

VARIANTS = ("log", "power")
SMALLEST = 0.01
LARGEST_POWER = 2.0


def held(values: Tensor, largest: float | None = None) -> Tensor:
    """``values`` clipped to [0.01, largest], with the gradient of the values themselves."""
    return values.detach().clamp(SMALLEST, largest) + (values - values.detach())


@register(
    "kerple",
    Card(
        paper="KERPLE, arXiv 2205.09921",
        adds=("offset_bias",),
        extrapolation="defined for every offset",
        additive=False,
    ),
)
class Kerple(PositionEncoding):
    """Two scalars a head: ``r1`` (H,) and ``r2`` (H,).

    Args:
        num_heads, head_dim, grid: as for every encoding.
        variant: ``"log"`` or ``"power"``.

    Raises:
        ValueError: an unknown ``variant``.
    """

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid, *, variant: str = "log") -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("variant", variant, VARIANTS)
        self.variant = variant
        self.r1 = nn.Parameter(torch.empty(num_heads))
        self.r2 = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform, up to 2 for the logarithm's factor and the exponent, up to 1 for the other one, as released."""
        nn.init.uniform_(self.r1, SMALLEST, 2.0 if self.variant == "log" else 1.0)
        nn.init.uniform_(self.r2, SMALLEST, 1.0 if self.variant == "log" else 2.0)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        r1, r2 = at_least_float32(self.r1), at_least_float32(self.r2)
        squares = torch.zeros((), dtype=r1.dtype, device=r1.device)
        for axis in range(q.ndim):
            delta = occurring_offsets(q, k, axis, r1.device)
            squares = squares[..., None] + delta.to(r1.dtype).square()
        distance = squares.sqrt()  # (R_1, ..., R_n)
        shape = (-1, *(1,) * q.ndim)
        if self.variant == "log":
            table = -held(r1).view(shape) * torch.log1p(held(r2).view(shape) * distance)
        else:
            table = -held(r1).view(shape) * distance ** held(r2, LARGEST_POWER).view(shape)
        return PositionTerms(offset_bias=(table,), grids=(q, k))
