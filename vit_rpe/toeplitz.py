"""Values that depend on the offset only, spread over pairs of tokens.

A table holds one value for every offset between the first and the last that occur on an axis; the value of a pair is
found at its offset. Between neighbouring tokens the rows of the result are shifted views of one another, so it is
built by copying runs of the table, not by a lookup per pair: several times faster, and the same bits.

Legend: H heads, n axes, Sq/Sk tokens of the query/key grid along one axis, Pq/Pk all of them,
R_a = number of lattice offsets along axis a.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any

import torch
from torch import Tensor

from vit_rpe.geometry import TokenGrid, are_constants, axis_offsets

LONGEST_SLIDE = 64


class Scratch:
    """Memory for one result of :func:`slide` at a time, kept from one window of queries to the next.

    Blocks this large go back to the system when they are freed, and getting them again costs a page fault for every
    4 kB: a quarter of the time of attention over 128 x 128 tokens.
    """

    def __init__(self) -> None:
        self._memory: Tensor | None = None
        self._free = False

    def clear(self) -> None:
        """The last result is no longer needed."""
        self._free = True

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor | None:
        """Memory of this shape, dtype and device; None while a result is in use."""
        if not self._free:
            return None
        self._free = False
        size = prod(shape)
        kept = self._memory
        if kept is None or kept.numel() < size or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._memory = like.new_empty(size)
        return kept[:size].view(tuple(shape))


_scratch: ContextVar[Scratch | None] = ContextVar("scratch", default=None)


@contextmanager
def reusing_memory() -> Iterator[Scratch]:
    """Within it results of :func:`slide` share one block of memory: each is valid until ``clear`` and the next."""
    scratch = Scratch()
    token = _scratch.set(scratch)
    try:
        yield scratch
    finally:
        _scratch.reset(token)


def offset_range(q: TokenGrid, k: TokenGrid, axis: int) -> tuple[int, int]:
    """The lowest offset along one axis, query minus key, and how many there are up to the highest."""
    last_q = q.origin[axis] + (q.size[axis] - 1) * q.steps[axis]
    last_k = k.origin[axis] + (k.size[axis] - 1) * k.steps[axis]
    low = q.origin[axis] - last_k
    return low, last_q - k.origin[axis] - low + 1


def spread(table: Tensor, q: TokenGrid, k: TokenGrid) -> Tensor:
    """Values of all grid pairs from values of all offsets.

    Args:
        table: (H, R_1, ..., R_n), along every axis the offsets of :func:`offset_range`, rising.

    Returns:
        (H, Pq, Pk) in the dtype of ``table``.
    """
    if not are_constants(*q.size, *k.size) or q.steps != k.steps:
        index = [axis_offsets(q, k, axis, table.device) - offset_range(q, k, axis)[0] for axis in range(q.ndim)]
        return lookup(table, index, q, k)
    for axis, step in enumerate(q.steps):
        if step > 1:
            table = table[(slice(None),) * (1 + axis) + (slice(None, None, step),)]
    heads = table.shape[0]
    rows, columns = q.size[0], k.size[0]
    if q.ndim == 1 and rows > LONGEST_SLIDE:
        return table.flip(1).unfold(1, columns, 1).flip(1)
    # Opening an axis R into (Sq, Sk) is a strided view of the reversed table, last query first. With the first axis
    # left as it is, (H, R, Sq_2, ..., Sk_2, ...), what a query sees of all its offsets is one run, and row i of the
    # queries sees the run from Sq - 1 - i on.
    runs = table.flip(tuple(range(1, 1 + q.ndim)))
    for axis in range(1, q.ndim):
        runs = runs.unfold(1 + axis, k.size[axis], 1)
    inner = tuple(range(1, q.ndim))
    runs = runs.permute(0, *range(2, 1 + q.ndim), 1, *range(1 + q.ndim, 2 * q.ndim))
    runs = (runs.flip(inner) if inner else runs).reshape(heads, q.num_patches // rows, -1)
    width = k.num_patches // columns
    return slide(runs, rows, columns * width, width).reshape(heads, q.num_patches, k.num_patches)


def lookup(table: Tensor, index: Sequence[Tensor], q: TokenGrid, k: TokenGrid) -> Tensor:
    """T[h, index_1, ..., index_n] of all grid pairs, one index (Sq, Sk) an axis: (H, L_1, ..., L_n) -> (H, Pq, Pk).

    One ``index_select`` an axis: no (Pq, Pk) index exists.
    """
    for axis, rows in enumerate(index):
        table = table.index_select(1 + axis, rows.flatten())
    heads = table.shape[0]
    # (H, Sq_1 Sk_1, ..., Sq_n Sk_n) -> (H, Sq_1 ... Sq_n, Sk_1 ... Sk_n)
    pairs = [size for axis in range(q.ndim) for size in (q.size[axis], k.size[axis])]
    order = [0, *range(1, 2 * q.ndim, 2), *range(2, 2 * q.ndim + 1, 2)]
    return table.reshape(heads, *pairs).permute(order).reshape(heads, q.num_patches, k.num_patches)


def slide(runs: Tensor, rows: int, length: int, step: int) -> Tensor:
    """Cut ``rows`` overlapping pieces out of every run: out[h, i, x] = runs[h, x, (rows - 1 - i) step :][:length].

    Args:
        runs: (H, X, (rows - 1) step + length).

    Returns:
        (H, rows, X, length).
    """
    if runs.requires_grad and torch.is_grad_enabled():
        return _Slide.apply(runs, rows, length, step)
    pieces = [runs.narrow(2, (rows - 1 - row) * step, length) for row in range(rows)]
    scratch = None if torch.compiler.is_compiling() or torch.is_grad_enabled() else _scratch.get()
    kept = None if scratch is None else scratch.take((runs.shape[0], rows, runs.shape[1], length), runs)
    return torch.stack(pieces, dim=1, out=kept)


class _Slide(torch.autograd.Function):
    """``slide`` whose backward adds each piece in place; autograd's own would pad every piece to the full run."""

    @staticmethod
    def forward(ctx: Any, runs: Tensor, rows: int, length: int, step: int) -> Tensor:
        ctx.shape, ctx.step = runs.shape, step
        return torch.stack([runs.narrow(2, (rows - 1 - row) * step, length) for row in range(rows)], dim=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _Unslide.apply(grad, ctx.shape, ctx.step), None, None, None


class _Unslide(torch.autograd.Function):
    """The adjoint of ``slide``: (H, rows, X, length) -> the shape of the runs. Its own adjoint is ``slide``."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, shape: torch.Size, step: int) -> Tensor:
        rows, length = grad.shape[1], grad.shape[3]
        ctx.arguments = rows, length, step
        total = grad.new_zeros(shape)
        for row in range(rows):
            total.narrow(2, (rows - 1 - row) * step, length).add_(grad[:, row])
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return slide(grad, *ctx.arguments), None, None
