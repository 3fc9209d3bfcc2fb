"""Rotary position, axial:  pair t of axis a turns by the angle  x_a base^(-2 n t / D),  t = 0 ... D/(2n) - 1.

RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv 2104.09864, eq. 15; on images Rotary Position
Embedding for Vision Transformer, arXiv 2403.13298, eq. 9 and 10. The logit of two tokens then depends on their offset
only. No parameters; cos and sin are built once and each q and k is turned once.

Layout: the D/2 angles are those of the first axis, then of the second ...; pair (c, c + D/2) turns by angle c.
Prefix tokens have angle 0, so a pair with one is not relative.

With ``reference`` the positions of any grid are stretched to span the given size, x_a size_ref / size_a (EVA-02: A
Visual Representation for Neon Genesis, arXiv 2303.11331, and models that follow its code).
"""

from __future__ import annotations

import torch
from torch import Tensor

from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.encodings._registry import register
from vit_rpe.position.geometry import Device, TokenGrid, common_lattice
from vit_rpe.position.terms import PositionTerms


def axial_angles(
    grid: TokenGrid,
    head_dim: int,
    base: float,
    device: Device = None,
    *,
    reference: tuple[int, ...] | None = None,
    lattice: tuple[int, ...] | None = None,
) -> Tensor:
    """Angles of all tokens, prefix first, float32 (N, D/2).

    Args:
        reference: positions on the ``lattice`` (default: the grid's) are stretched to span this size.
    """
    per_axis = head_dim // (2 * grid.ndim)
    frequencies = base ** (-torch.arange(per_axis, device=device, dtype=torch.float32) / per_axis)
    positions = grid.positions(device).float()
    if reference is not None:
        places = zip(positions.unbind(1), lattice or grid.lattice, reference, strict=True)
        positions = torch.stack([place / size * span for place, size, span in places], dim=1)
    angles = positions[:, :, None] * frequencies  # (P, n, D/2n)
    return torch.nn.functional.pad(angles.flatten(1), (0, 0, grid.num_prefix, 0))


@register(
    "rope",
    Card(
        paper="RoFormer, arXiv 2104.09864; RoPE-ViT, arXiv 2403.13298",
        adds=("rotate_q", "rotate_k"),
        extrapolation="defined for every offset",
        additive=False,
    ),
)
class Rope(PositionEncoding):
    """Fixed frequencies, an equal share of the head width for each axis.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        base: ratio of the slowest to the fastest wavelength; None = 10000 in 1-D, 100 otherwise.
        reference: stretch the positions of every grid to span this size, one entry per axis; None = leave them.

    Raises:
        ValueError: ``head_dim`` does not split into pairs for every axis, ``base`` or ``reference`` is not positive.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        base: float | None = None,
        reference: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        if head_dim % (2 * grid.ndim) != 0:
            raise ValueError(
                f"rope turns pairs of channels for each of {grid.ndim} axes: head_dim must be divisible by "
                f"{2 * grid.ndim}, got {head_dim}"
            )
        if base is None:
            base = 10000.0 if grid.ndim == 1 else 100.0
        if not base > 0:
            raise ValueError(f"base must be positive, got {base!r}")
        if reference is not None and (len(reference) != grid.ndim or min(reference) < 1):
            raise ValueError(f"reference={reference!r} needs one positive size per axis of the grid {grid.size}")
        self.base = base
        self.reference = reference

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        stretch = {"reference": self.reference, "lattice": common_lattice(q, k)}
        angles_q = axial_angles(q, self.head_dim, self.base, device, **stretch)
        rotate_q = (angles_q.cos(), angles_q.sin())
        if q == k:
            return PositionTerms(rotate_q=rotate_q, rotate_k=rotate_q)
        angles_k = axial_angles(k, self.head_dim, self.base, device, **stretch)
        return PositionTerms(rotate_q=rotate_q, rotate_k=(angles_k.cos(), angles_k.sin()))
