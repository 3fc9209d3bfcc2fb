"""Rotary position with learned frequencies:  angle[h, t] = sum_a x_a f[a, h, t].

Rotary Position Embedding for Vision Transformer, arXiv 2403.13298, eq. 11 and 12 (RoPE-Mixed): diagonal directions can
be told apart, which the axial form cannot. n D/2 parameters a head; cos and sin are computed per head and layer.

At the start each head has n random directions at right angles to each other; a share of D/2n channel pairs turns along
each, with speeds base^(-2 n t / D). Pair (c, c + D/2) turns by angle c. Prefix tokens have angle 0.
Differs from the paper: any number of axes.

``layout="axial"`` learns a speed for every pair, each along one axis, (H, D/2); ``normalized`` has coordinates
(i + 1/2) / size of the lattice in hand, and ``noise`` moves tokens at random in training. With these it contains
ComRoPE-AP and ComRoPE-LD (ComRoPE puts the class token at 1/2 where prefix tokens here have angle 0) and STRING, arXiv
2502.02562 and 2511.08368: rotations that commute have a common basis in which they turn pairs, and W_q and W_k learn in
any basis alike. ``scaling`` is for grids larger than ``native`` (:mod:`vit_rpe.encodings._scaling`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._native import remember_native
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._rotary import Rotation, check_positive, places, rotation, speeds, with_prefix_angles
from vit_rpe.encodings._scaling import check_scaling, scaled_vectors, stretch, warmer
from vit_rpe.position.geometry import Device, TokenGrid, common_lattice
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.terms import PositionTerms

LAYOUTS = ("mixed", "axial")


@once_per_forward
def moves(lattice: tuple[int, ...], noise: float, device: Device, dtype: torch.dtype) -> Tensor:
    """How far every place of a lattice is moved in this forward, normal, (size_1, ..., size_n, n).

    Drawn once for queries, keys, windows and the layers of a model.
    """
    return noise * torch.randn(*lattice, len(lattice), device=device, dtype=dtype)


@register(
    "rope_mixed",
    Card(
        paper="RoPE-ViT, arXiv 2403.13298",
        adds=("rotate_q", "rotate_k"),
        extrapolation="defined for every offset",
        additive=False,
    ),
)
class RopeMixed(PositionEncoding):
    """Learned ``frequencies``, (n, H, D/2), or (H, D/2) where axial.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        layout: ``"mixed"``, every pair along all axes, or ``"axial"``, an equal share of the pairs along each; in 1-D
            ``"mixed"``.
        base: ratio of the fastest to the slowest speed at the start.
        normalized: coordinates between 0 and 1 on every grid.
        noise: standard deviation of the random moves in training, in the unit of the coordinates; None = none.
        scaling: on larger grids, ``"linear"`` or ``"yarn"``; None = as on the native one.
        native: size that ``scaling`` compares with; None = that of the native grid. Resizing keeps it.

    Raises:
        ValueError: a ``head_dim`` that does not split into pairs, a value out of its range, or options that exclude
            each other.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        layout: str = "mixed",
        base: float = 10.0,
        normalized: bool = False,
        noise: float | None = None,
        scaling: str | None = None,
        native: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("layout", layout, LAYOUTS)
        if layout == "axial" and grid.ndim == 1:
            raise ValueError(f"layout='axial' needs a grid of several axes, got {grid.size}: in 1-D leave it 'mixed'")
        divisor = 2 * grid.ndim if layout == "axial" else 2
        if head_dim % divisor != 0:
            raise ValueError(
                f"rope_mixed turns pairs of channels: with layout={layout!r} head_dim must be divisible by {divisor}, "
                f"got {head_dim}"
            )
        check_positive("base", base)
        if noise is not None:
            check_positive("noise", noise)
        check_scaling(scaling, native)
        if scaling == "ntk":
            raise ValueError("scaling='ntk' changes a base, and rope_mixed has learned frequencies: 'linear' or 'yarn'")
        if scaling is not None and normalized:
            raise ValueError(f"normalized=True makes every grid span one size: leave scaling={scaling!r} out")
        self.native = grid.size
        if scaling is not None:
            remember_native(self, native)
        if normalized:
            self.card = replace(
                self.card,
                extrapolation="coordinates are relative to the grid in hand, so any grid spans the same range",
                supports_kv_cache=False,
            )
        self.layout = layout
        self.base = base
        self.normalized = normalized
        self.noise = noise
        self.scaling = scaling
        shape = (num_heads, head_dim // 2)
        self.frequencies = nn.Parameter(torch.empty(shape if layout == "axial" else (grid.ndim, *shape)))
        self.reset_parameters()

    def remembered(self) -> dict[str, Any]:
        return {} if self.scaling is None else {"native": self.native}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        axes, device = self.grid.ndim, self.frequencies.device
        num_heads, pairs = self.frequencies.shape[-2:]
        share = -(-pairs // axes)  # channel pairs a direction, rounded up
        pair = torch.arange(pairs, device=device)
        speed = speeds(share, self.base, device=device)[pair % share]  # (D/2,)
        if self.layout == "axial":
            self.frequencies.copy_(speed.expand(num_heads, -1))
            return
        random = torch.randn(num_heads, axes, axes, device=device)
        directions, _ = torch.linalg.qr(random)  # (H, n, n): columns at right angles
        self.frequencies.copy_(directions[:, :, pair // share].movedim(1, 0) * speed)

    def vectors(self) -> Tensor:
        """f of every pair in at least float32, (n, H, D/2)."""
        frequencies = at_least_float32(self.frequencies)
        if self.layout == "mixed":
            return frequencies
        axes, pairs = self.grid.ndim, frequencies.shape[-1]
        own = torch.arange(pairs, device=frequencies.device) // (pairs // axes)  # the axis of every pair
        return frequencies * (own == torch.arange(axes, device=frequencies.device)[:, None])[:, None]

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        lattice = common_lattice(q, k)
        vectors = self.vectors()
        sigma = None if self.scaling is None else stretch(lattice, self.native, vectors.device)
        if self.scaling is not None and sigma is not None:
            vectors = scaled_vectors(vectors, self.scaling, sigma, self.native)
        moved = None
        if self.training and self.noise is not None:
            moved = moves(lattice, self.noise, vectors.device, vectors.dtype)

        def turned(grid: TokenGrid) -> Rotation:
            coordinates = [places(grid, axis, vectors.device, vectors.dtype) for axis in range(grid.ndim)]
            if self.normalized:
                coordinates = [(place + 0.5) / size for place, size in zip(coordinates, lattice, strict=True)]
            if moved is None:
                found = rotation(vectors, coordinates, grid.num_prefix)
            else:
                found = _moved_rotation(vectors, coordinates, moved, grid)
            return warmer(found, sigma) if self.scaling == "yarn" and sigma is not None else found

        rotate_q = turned(q)
        return PositionTerms(rotate_q=rotate_q, rotate_k=rotate_q if q == k else turned(k))


def _moved_rotation(vectors: Tensor, coordinates: Sequence[Tensor], moved: Tensor, grid: TokenGrid) -> Rotation:
    """The rotation of tokens moved one by one: no sum over axes any more."""
    for axis in range(grid.ndim):
        moved = moved.index_select(axis, grid.axis_positions(axis, moved.device))
    where = torch.stack(torch.meshgrid(*coordinates, indexing="ij"), dim=-1) + moved
    angles = (where.flatten(0, -2)[:, :, None, None] * vectors).sum(1).transpose(0, 1)  # (H, P, D/2)
    return with_prefix_angles((angles.cos(), angles.sin()), grid.num_prefix)
