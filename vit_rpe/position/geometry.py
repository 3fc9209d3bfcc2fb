"""Token grids and the offsets between their tokens.

Integers in, integer tensors out. Axes are row-major and ordered ``(h, w)``, 3-D ``(t, h, w)``, 1-D ``(n,)``.
An offset is always **query minus key**.

Legend: n axes, P grid tokens (no prefix), N = num_prefix + P, Sq/Sk the length of one axis of the query/key grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from operator import lt

import torch
from torch import Tensor

from vit_rpe.checks import plain, warn_renamed

Device = torch.device | str | None


@dataclass(frozen=True, init=False)
class TokenGrid:
    """A sequence of ``num_prefix`` position-less tokens followed by a grid of tokens.

    Args:
        size: tokens per axis, ``(n,)``, ``(h, w)`` or ``(t, h, w)``; entries may be symbolic under compile/export.
        num_prefix: class and register tokens in front of the grid.
        origin: lattice coordinate of the first grid token, per axis (a window, a decoding step); default 0.
        stride: lattice steps between neighbouring tokens, per axis (pooled tokens); default 1.
        extent: size of the whole lattice this grid is a part of, per axis; default: up to the grid's last token.

    Raises:
        ValueError: entries that are no integers or not one per axis, an axis without tokens, a stride below 1, or an
            extent that ends before the last token.
    """

    size: tuple[int, ...]
    num_prefix: int
    origin: tuple[int, ...]
    stride: tuple[int, ...] | None
    extent: tuple[int, ...] | None

    def __init__(
        self,
        size: tuple[int, ...],
        num_prefix: int = 0,
        origin: tuple[int, ...] | None = None,
        stride: tuple[int, ...] | None = None,
        extent: tuple[int, ...] | None = None,
        *,
        offset: tuple[int, ...] | None = None,
    ) -> None:
        if offset is not None:
            warn_renamed("offset= of a TokenGrid", "origin=")
            if origin is not None:
                raise ValueError(f"origin={origin!r} and its old name offset={offset!r} are both given")
            origin = offset
        size, num_prefix, origin, stride, extent = plain((size, num_prefix, origin, stride, extent))
        if not isinstance(size, tuple) or len(size) == 0:
            raise ValueError(f"size must be a non-empty tuple of axis lengths, got {size!r}")
        for name, value in (("origin", origin), ("stride", stride), ("extent", extent)):
            if value is not None and (not isinstance(value, tuple) or len(value) != len(size)):
                raise ValueError(f"{name}={value!r} needs one entry per axis of size={size!r}, in a tuple")
        keep = object.__setattr__  # frozen
        keep(self, "size", size)
        keep(self, "num_prefix", num_prefix)
        keep(self, "origin", (0,) * len(size) if origin is None else origin)
        keep(self, "stride", stride)
        keep(self, "extent", extent)
        self._check()

    def _check(self) -> None:
        for entry in (*self.size, *self.origin, *self.steps, *(self.extent or ()), self.num_prefix):
            if isinstance(entry, (bool, float, str)) or entry is None:
                raise ValueError(f"a grid is made of integers, got {entry!r} in {self!r}")
        # Lengths that are symbols of an export or compile cannot be branched on and are not checked here.
        if any(type(length) is int and length < 1 for length in self.size):
            raise ValueError(f"every axis needs at least one token, got size={self.size!r}")
        if self.num_prefix < 0:
            raise ValueError(f"num_prefix must be 0 or more, got {self.num_prefix}")
        if any(type(step) is int and step < 1 for step in self.steps):
            raise ValueError(f"stride must be at least 1 along every axis, got {self.stride!r}")
        known = self.extent is not None and are_constants(*self.extent, *self.reach)
        if known and any(map(lt, self.lattice, self.reach)):
            raise ValueError(f"extent={self.extent!r} must hold all tokens of the grid, which need {self.reach}")

    @property
    def ndim(self) -> int:
        return len(self.size)

    @property
    def num_patches(self) -> int:
        """Tokens of the grid itself."""
        return prod(self.size)

    @property
    def num_tokens(self) -> int:
        """Prefix and grid tokens together: the length of the sequence."""
        return self.num_prefix + self.num_patches

    @property
    def offset(self) -> tuple[int, ...]:
        """Deprecated: ``origin``."""
        warn_renamed("TokenGrid.offset", "TokenGrid.origin")
        return self.origin

    @property
    def steps(self) -> tuple[int, ...]:
        return self.stride if self.stride is not None else (1,) * self.ndim

    @property
    def reach(self) -> tuple[int, ...]:
        """Size of the smallest lattice that holds all tokens."""
        if self.stride is None and all(type(first) is int and first == 0 for first in self.origin):
            return self.size
        axes = zip(self.origin, self.size, self.steps, strict=True)
        return tuple(first + (size - 1) * step + 1 for first, size, step in axes)

    @property
    def lattice(self) -> tuple[int, ...]:
        """Size of the whole lattice, for encodings that normalise by it."""
        return self.extent if self.extent is not None else self.reach

    def axis_positions(self, axis: int, device: Device = None) -> Tensor:
        """Lattice coordinates along one axis, int64 (S,)."""
        start, step = self.origin[axis], self.steps[axis]
        return torch.arange(start, start + self.size[axis] * step, step, device=device)

    def positions(self, device: Device = None) -> Tensor:
        """Lattice coordinate of every grid token in sequence order, int64 (P, n)."""
        axes = [self.axis_positions(axis, device) for axis in range(self.ndim)]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, self.ndim)


def are_constants(*lengths: int) -> bool:
    """Whether code may branch on these lengths; under compile and export they may stand for any size."""
    return not torch.compiler.is_compiling() and all(type(length) is int for length in lengths)


def check_same_axes(q: TokenGrid, k: TokenGrid) -> None:
    """Raise ValueError unless both grids have the same number of axes."""
    if q.ndim != k.ndim:
        raise ValueError(f"query grid {q.size} and key grid {k.size} differ in their number of axes")


def common_lattice(q: TokenGrid, k: TokenGrid) -> tuple[int, ...]:
    """Size of the smallest lattice that holds both grids' lattices, for encodings that normalise by it.

    A pooled grid or a window without ``extent`` does not say where its lattice ends; the other grid often does.
    """
    if q.lattice == k.lattice:
        return q.lattice
    return tuple(torch.sym_max(a, b) for a, b in zip(q.lattice, k.lattice, strict=True))  # type: ignore[misc]


def axis_offsets(q: TokenGrid, k: TokenGrid, axis: int, device: Device = None) -> Tensor:
    """Offsets along one axis, query minus key, int64 (Sq, Sk)."""
    check_same_axes(q, k)
    return q.axis_positions(axis, device)[:, None] - k.axis_positions(axis, device)[None, :]


def offsets(q: TokenGrid, k: TokenGrid, device: Device = None) -> Tensor:
    """Offsets between all grid tokens, query minus key, int64 (Pq, Pk, n)."""
    check_same_axes(q, k)
    return q.positions(device)[:, None, :] - k.positions(device)[None, :, :]


def expand_axis(values: Tensor, axis: int, q: TokenGrid, k: TokenGrid) -> Tensor:
    """Repeat per-axis values (..., Sq_axis, Sk_axis) over all grid pairs, as a view (..., q sizes, k sizes).

    Reshaping the result to (..., Pq, Pk) copies it; adding views of several axes first costs one copy only.
    """
    lead = values.shape[:-2]
    shape_q = [1] * q.ndim
    shape_k = [1] * k.ndim
    shape_q[axis], shape_k[axis] = q.size[axis], k.size[axis]
    return values.reshape(*lead, *shape_q, *shape_k).expand(*lead, *q.size, *k.size)
