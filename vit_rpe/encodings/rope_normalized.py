"""Rotary position over coordinates that run from -1 to 1 on every grid:  angle = 2 pi x_a / base^(2 n t / D).

    x_a = 2 (i_a + 1/2) / size_a - 1,     size = the lattice that holds queries and keys, not the native one

DINOv3, arXiv 2508.10104, section 3.2 (axial rotary embedding with normalised coordinates and coordinate jitter, after
its released code). No parameters; cos and sin are built once. A larger image spans the same coordinates in finer steps.

Layout: the D/2 angles are those of the first axis, then of the second ...; pair (c, c + D/2) turns by angle c. Prefix
tokens have angle 0. In training the coordinates of a call may be shifted, stretched per axis and rescaled at random,
the same for queries and keys. Differs from the paper: any number of axes; the three augmentations are off by default.
"""

from __future__ import annotations

from functools import reduce
from math import log, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.encodings._registry import register
from vit_rpe.position.geometry import Device, TokenGrid, common_lattice
from vit_rpe.position.terms import PositionTerms

NORMALIZE = ("separate", "min", "max")


class Change(NamedTuple):
    """One random change of all coordinates: x -> (x + shift) * stretch, each float32 (n,)."""

    shift: Tensor
    stretch: Tensor


def normalized_coordinates(grid: TokenGrid, lattice: tuple[int, ...], normalize: str, device: Device = None) -> Tensor:
    """Coordinates in [-1, 1] of all grid tokens on a lattice of the given size, float32 (P, n); the longest or shortest
    axis alone spans them all with ``"max"`` or ``"min"``."""
    sizes: list[Any] = list(lattice)
    if normalize != "separate":
        pick: Any = torch.sym_min if normalize == "min" else torch.sym_max  # min and max, for symbols too
        sizes = [reduce(pick, sizes)] * grid.ndim
    positions = grid.positions(device).float()
    axes = [(place + 0.5) / size for place, size in zip(positions.unbind(1), sizes, strict=True)]
    return 2.0 * torch.stack(axes, dim=-1) - 1.0


@register(
    "rope_normalized",
    Card(
        paper="DINOv3, arXiv 2508.10104",
        adds=("rotate_q", "rotate_k"),
        extrapolation="coordinates are relative to the grid in hand, so any grid spans the same range",
        supports_kv_cache=False,
        additive=False,
    ),
)
class RopeNormalized(PositionEncoding):
    """Fixed frequencies over normalised coordinates.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        base: ratio of the longest to the shortest period.
        normalize: divide each axis by its own size (``"separate"``), or all by the smallest (``"min"``) or largest
            (``"max"``) one.
        shift: in training, move each axis by up to this much either way, uniform; None = not.
        jitter: in training, stretch each axis by a factor between 1/jitter and jitter, log-uniform; None = not.
        rescale: the same with one factor for all axes.

    Raises:
        ValueError: ``head_dim`` does not split into pairs for every axis, or an option is out of its range.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        base: float = 100.0,
        normalize: str = "separate",
        shift: float | None = None,
        jitter: float | None = None,
        rescale: float | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("normalize", normalize, NORMALIZE)
        if normalize != "separate" and grid.ndim == 1:
            raise ValueError(
                f"normalize={normalize!r} needs a grid of several axes, got {grid.size}: in 1-D all are the same"
            )
        if head_dim % (2 * grid.ndim) != 0:
            raise ValueError(
                f"rope_normalized turns pairs of channels for each of {grid.ndim} axes: head_dim must be divisible by "
                f"{2 * grid.ndim}, got {head_dim}"
            )
        if not base > 0:
            raise ValueError(f"base must be positive, got {base!r}")
        if shift is not None and shift < 0:
            raise ValueError(f"shift must be at least 0, got {shift!r}")
        for name, value in (("jitter", jitter), ("rescale", rescale)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is a factor of at least 1, got {value!r}")
        self.base = base
        self.normalize = normalize
        self.shift = shift
        self.jitter = jitter
        self.rescale = rescale

    def draw_change(self, device: Device = None) -> Change | None:
        """The random change of one training forward; None in evaluation or where none is asked for."""
        if not self.training or (self.shift is None and self.jitter is None and self.rescale is None):
            return None
        axes = self.grid.ndim
        shift = torch.zeros(axes, device=device)
        stretch = torch.ones(axes, device=device)
        if self.shift is not None:
            shift = torch.empty(axes, device=device).uniform_(-self.shift, self.shift)
        if self.jitter is not None:
            stretch = stretch * torch.empty(axes, device=device).uniform_(-log(self.jitter), log(self.jitter)).exp()
        if self.rescale is not None:
            factor = torch.empty(1, device=device).uniform_(-log(self.rescale), log(self.rescale))
            stretch = stretch * factor.exp()
        return Change(shift, stretch)

    def angles(self, grid: TokenGrid, lattice: tuple[int, ...], change: Change | None, device: Device = None) -> Tensor:
        """Angles of all tokens, prefix first, float32 (N, D/2)."""
        coordinates = normalized_coordinates(grid, lattice, self.normalize, device)
        if change is not None:
            coordinates = (coordinates + change.shift) * change.stretch
        share = self.head_dim // (2 * grid.ndim)
        periods = self.base ** (torch.arange(share, device=device, dtype=torch.float32) / share)
        angles = 2.0 * pi * coordinates[:, :, None] / periods  # (P, n, D/2n)
        return torch.nn.functional.pad(angles.flatten(1), (0, 0, grid.num_prefix, 0))

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        change = self.draw_change(device)
        lattice = common_lattice(q, k)
        angles_q = self.angles(q, lattice, change, device)
        rotate_q = (angles_q.cos(), angles_q.sin())
        if q == k:
            return PositionTerms(rotate_q=rotate_q, rotate_k=rotate_q)
        angles_k = self.angles(k, lattice, change, device)
        return PositionTerms(rotate_q=rotate_q, rotate_k=(angles_k.cos(), angles_k.sin()))
