"""Polar position: what a channel holds is a length, where a token stands is an angle:

    logit_ij = s sum_c  softplus(q_c) softplus(k_c) cos( w_c delta_a(c) - phase_{h,c} ),     w_c = base^(-c n / D)

PoPE, arXiv 2509.10534: "what" and "where" in channels that cannot be taken for one another, as the angle between q and
k can in a rotation of pairs. Every axis has D/n channels, c counts them; the phase is learned, starts at 0 and is kept
between -2 pi and 0. s is that of D channels. Attention computes 2 D, cos and sin of each.

Prefix tokens have angle 0, and as keys no phase. Differs from the paper: any number of axes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._rotary import (
    Rotation,
    axial_vectors,
    check_positive,
    places,
    rotation,
    speeds,
    with_prefix_angles,
)
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.terms import PositionTerms


@once_per_forward
def grid_angles(grid: TokenGrid, head_dim: int, base: float, device: Device) -> Rotation:
    """cos and sin of the angle of every channel of the grid tokens, float32 (1, P, D)."""
    vectors = axial_vectors(speeds(head_dim // grid.ndim, base, device=device), grid.ndim)
    coordinates = [places(grid, axis, device, torch.float32) for axis in range(grid.ndim)]
    return rotation(vectors, coordinates, 0)


@register(
    "pope",
    Card(
        paper="PoPE, arXiv 2509.10534",
        adds=("polar_q", "polar_k"),
        extrapolation="defined for every offset",
        additive=False,
    ),
)
class Pope(PositionEncoding):
    """Parameter ``phase``, (H, D).

    Args:
        num_heads, head_dim, grid: as for every encoding.
        base: ratio of the fastest speed, one radian a token, to the slowest.

    Raises:
        ValueError: ``head_dim`` does not split into the axes, ``base`` not positive.
    """

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid, *, base: float = 10000.0) -> None:
        super().__init__(num_heads, head_dim, grid)
        if head_dim % grid.ndim != 0:
            raise ValueError(
                f"pope gives every axis its share of the channels: head_dim must be divisible by {grid.ndim}, "
                f"got {head_dim}"
            )
        check_positive("base", base)
        self.base = base
        self.phase = nn.Parameter(torch.empty(num_heads, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.phase)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        phase = at_least_float32(self.phase).clamp(-2 * math.pi, 0.0)[:, None]  # (H, 1, D)
        of_q, of_k = (grid_angles(grid, self.head_dim, self.base, phase.device) for grid in (q, k))
        return PositionTerms(
            polar_q=with_prefix_angles(of_q, q.num_prefix),
            polar_k=with_prefix_angles(_ahead(of_k, phase), k.num_prefix),
        )


def _ahead(angles: Rotation, phase: Tensor) -> Rotation:
    """cos and sin of the angles (1, P, D) plus the phase (H, 1, D): (H, P, D)."""
    (cos, sin), (a, b) = angles, (phase.cos(), phase.sin())
    return cos * a - sin * b, sin * a + cos * b
