"""Rotary position with fixed frequencies:  pair t of the channels turns by the angle  f_t . x,  x the token's place.

``axial``    pairs for each axis:  f_t = fastest base^(-2 n t / D) along axis a,  t = 0 ... D/(2n) - 1
``spiral``   2-D, half of the pairs along rows, half along columns, both turned by angles that cycle over the pairs
``golden``   evenly spread directions, different for every pair and head; speeds from slow to fast
``simplex``  the n + 1 corners of a regular simplex share every speed; pairs left over stand still

RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv 2104.09864, eq. 15; on images Rotary Position
Embedding for Vision Transformer, arXiv 2403.13298, eq. 9 and 10. Spiral RoPE (published with base 10000, fastest 1.5,
reference (14, 14)); golden-gate RoPE; nD-RoPE, arXiv 2606.12146, and GridPE, arXiv 2406.07049 (simplex; nD-RoPE turns
every head's simplex at random). The logit of two tokens depends on their offset only. No parameters; cos and sin are
built once a forward and each q and k is turned once.

Pair (c, c + D/2) turns by angle c. Prefix tokens have angle 0, so a pair with one is not relative. ``registers`` places
the prefix tokens after the class token on a lattice of their own (ViT-5: 4 registers, 2 x 2, base 100).

With ``reference`` the positions of any grid are stretched to span the given size, x_a size_ref / size_a (EVA-02: A
Visual Representation for Neon Genesis, arXiv 2303.11331, and models that follow its code), and ``origin`` is added
before that (Perception Encoder, arXiv 2504.13181: 1, so that its class token stands apart). With ``scaling``
frequencies change on grids larger than ``native`` (:mod:`vit_rpe.encodings._scaling`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.encodings._native import remember_native
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._rotary import (
    LAYOUTS,
    Rotation,
    as_heads_share,
    check_positive,
    fixed_vectors,
    layout_directions,
    places,
    rotation,
    with_prefix_angles,
)
from vit_rpe.encodings._scaling import check_scaling, scaled_vectors, stretch, warmer
from vit_rpe.position.geometry import Device, TokenGrid, common_lattice
from vit_rpe.position.terms import PositionTerms


def register_lattice(num_prefix: int, axes: int) -> tuple[int, int]:
    """How many prefix tokens are a class token (0 or 1), and the places m per axis on which the others stand.

    Raises:
        ValueError: neither all prefix tokens nor all but the first fill a lattice m^n with m > 1.
    """
    for others in (num_prefix, num_prefix - 1):
        side = round(max(others, 0) ** (1 / axes))
        if axes > 1 and side > 1 and side**axes == others:
            return num_prefix - others, side
    raise ValueError(
        "registers stand on a square (cubic) lattice of at least 2 places an axis, beside a class token or none: "
        f"{num_prefix} prefix tokens on {axes} axes do not make one"
    )


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
    """Fixed frequencies.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        layout: ``"axial"``, ``"spiral"``, ``"golden"`` or ``"simplex"``, see above.
        base: ratio of the fastest to the slowest speed; None = 10000 in 1-D, 100 otherwise.
        fastest: the fastest speed in radians a token.
        zero_share: share of the speeds, slowest first, that stand still instead: of each axis (``"spiral"``: each
            half, ``"golden"``: each head).
        directions: of the spiral over the half turn, even; None = 16 or the largest power of two that the width allows.
        reference: stretch the positions of every grid to span this size, one entry per axis; None = leave them.
        origin: the place of the first token along every axis; only pairs with a prefix token, at 0, feel it.
        registers: base of the frequencies of register tokens, see above; None = they have angle 0.
        scaling: on larger grids, ``"linear"``, ``"ntk"`` (axial) or ``"yarn"``; None = as on the native one.
        native: size that ``scaling`` compares with; None = that of the native grid. Resizing keeps it.

    Raises:
        ValueError: ``head_dim`` does not split into pairs for the layout, a value is not positive, registers that fill
            no lattice, or options that exclude each other.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        layout: str = "axial",
        base: float | None = None,
        fastest: float = 1.0,
        zero_share: float = 0.0,
        directions: int | None = None,
        reference: tuple[int, ...] | None = None,
        origin: float = 0.0,
        registers: float | None = None,
        scaling: str | None = None,
        native: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("layout", layout, LAYOUTS)
        _check_width(layout, head_dim, grid)
        self.directions = layout_directions(
            layout,
            axes=grid.ndim,
            num_heads=num_heads,
            pairs=head_dim // 2,
            directions=_spiral_directions(layout, head_dim, directions),
        )
        if base is None:
            base = 10000.0 if grid.ndim == 1 else 100.0
        check_positive("base", base)
        check_positive("fastest", fastest)
        if not 0 <= zero_share < 1:
            raise ValueError(f"zero_share must be a share of the speeds, 0 <= share < 1, got {zero_share!r}")
        if reference is not None and (len(reference) != grid.ndim or min(reference) < 1):
            raise ValueError(f"reference={reference!r} needs one positive size per axis of the grid {grid.size}")
        if registers is not None:
            check_positive("registers", registers)
            register_lattice(grid.num_prefix, grid.ndim)
        check_scaling(scaling, native)
        if scaling == "ntk" and layout != "axial":
            raise ValueError(f"scaling='ntk' changes the speeds of each axis: for layout='axial' alone, got {layout!r}")
        if scaling is not None and reference is not None:
            raise ValueError(
                f"reference={reference!r} already makes every grid span one size: leave scaling={scaling!r} out"
            )
        if scaling == "ntk" and head_dim < 4 * grid.ndim:
            raise ValueError(f"scaling='ntk' needs two speeds for each axis: head_dim of at least {4 * grid.ndim}")
        self.native = grid.size
        if scaling is not None:
            remember_native(self, native)
        self.layout = layout
        self.base = base
        self.fastest = fastest
        self.zero_share = zero_share
        self.reference = reference
        self.origin = origin
        self.registers = registers
        self.scaling = scaling

    def remembered(self) -> dict[str, Any]:
        return {} if self.scaling is None else {"native": self.native}

    def vectors(self, base: float, device: Device = None) -> Tensor:
        """f of every pair, float32 (n, H or 1, D/2)."""
        return fixed_vectors(
            self.layout,
            self.directions,
            pairs=self.head_dim // 2,
            base=base,
            fastest=self.fastest,
            zero_share=self.zero_share,
            device=device,
        )

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        lattice = common_lattice(q, k)
        vectors = self.vectors(self.base, device)
        sigma = None if self.scaling is None else stretch(lattice, self.native, device)
        if self.scaling is not None and sigma is not None:
            vectors = scaled_vectors(vectors, self.scaling, sigma, self.native)

        def turned(grid: TokenGrid) -> Rotation:
            coordinates = [places(grid, axis, device, torch.float32) + self.origin for axis in range(grid.ndim)]
            if self.reference is not None:
                spans = zip(coordinates, lattice, self.reference, strict=True)
                coordinates = [place / size * span for place, size, span in spans]
            found = rotation(vectors, coordinates, 0)
            found = self._with_prefix(found, grid, device)
            return as_heads_share(warmer(found, sigma) if self.scaling == "yarn" and sigma is not None else found)

        rotate_q = turned(q)
        return PositionTerms(rotate_q=rotate_q, rotate_k=rotate_q if q == k else turned(k))

    def _with_prefix(self, turned: Rotation, grid: TokenGrid, device: Device) -> Rotation:
        """(H, P, F) -> (H, N, F): prefix tokens at angle 0, registers on their own lattice."""
        if self.registers is None or grid.num_prefix == 0:
            return with_prefix_angles(turned, grid.num_prefix)
        num_class, side = register_lattice(grid.num_prefix, grid.ndim)
        small = torch.arange(side, device=device, dtype=torch.float32)
        registers = rotation(self.vectors(self.registers, device), [small] * grid.ndim, num_class)
        return torch.cat([registers[0], turned[0]], 1), torch.cat([registers[1], turned[1]], 1)


def _check_width(layout: str, head_dim: int, grid: TokenGrid) -> None:
    if layout == "spiral" and grid.ndim != 2:
        raise ValueError(f"layout='spiral' turns rows and columns: it needs a grid of 2 axes, got {grid.size}")
    divisor = {"axial": 2 * grid.ndim, "spiral": 8}.get(layout, 2)
    if head_dim % divisor != 0:
        raise ValueError(
            f"rope turns pairs of channels, here for each of {grid.ndim} axes: with layout={layout!r} head_dim must be "
            f"divisible by {divisor}, got {head_dim}"
        )
    if layout == "simplex" and head_dim // 2 < grid.ndim + 1:
        raise ValueError(
            f"layout='simplex' needs a pair for each of {grid.ndim + 1} directions: head_dim of at least "
            f"{2 * grid.ndim + 2}, got {head_dim}"
        )


def _spiral_directions(layout: str, head_dim: int, directions: int | None) -> int:
    """K: as asked, else 16 or the largest power of two such that 4 K divides the width."""
    if layout != "spiral":
        if directions is not None:
            raise ValueError(f"directions={directions!r} are those of layout='spiral', got layout={layout!r}")
        return 0
    if directions is None:
        return next(found for found in (16, 8, 4, 2) if head_dim % (4 * found) == 0)
    if directions < 2 or directions % 2 or head_dim % (4 * directions):
        raise ValueError(
            f"directions must be even, with head_dim={head_dim} divisible by 4 directions, got {directions!r}"
        )
    return directions
