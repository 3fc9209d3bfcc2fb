"""Values that depend on the offset only, spread over pairs of tokens.

A table holds one value for every offset between the first and the last that occur on an axis; the value of a pair is
found at its offset. Between neighbouring tokens the rows of the result are shifted views of one another, so it is
built by copying runs of the table, not by a lookup per pair: several times faster where there are many, and the same
bits.

Legend: H heads, n axes, Sq/Sk tokens of the query/key grid along one axis, Pq/Pk all of them,
R_a = number of lattice offsets along axis a.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.position.geometry import Device, TokenGrid, are_constants, axis_offsets, expand_axis
from vit_rpe.position.geometry_cache import is_plain, is_transformed, once_per_forward

LONGEST_SLIDE = 64
FEW_PAIRS = 2**14
"""Pairs of grid tokens up to which looking each of them up costs less than preparing runs of the table."""

Allocate = Callable[[Sequence[int], Tensor], Tensor]


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
    if not are_constants(*q.size, *k.size) or q.steps != k.steps or is_transformed():
        index = [axis_offsets(q, k, axis, table.device) - offset_range(q, k, axis)[0] for axis in range(q.ndim)]
        return lookup(table, index, q, k)
    if _are_few(q, k, table):
        found = table.flatten(1).index_select(1, _entries_of_pairs(q, k, table.device))
        return found.view(table.shape[0], q.num_patches, k.num_patches)
    if q.ndim == 1 and q.size[0] > LONGEST_SLIDE:
        return _at_steps(table, q).flip(1).unfold(1, k.size[0], 1).flip(1)
    width = k.num_patches // k.size[0]
    pieces = slide(_runs(table, q, k), q.size[0], k.num_patches, width)
    return pieces.reshape(table.shape[0], q.num_patches, k.num_patches)


def spread_with_prefix(
    table: Tensor, prefix_bias: Tensor | None, q: TokenGrid, k: TokenGrid, allocate: Allocate | None = None
) -> Tensor | None:
    """:func:`spread` for all pairs at once, written in place: (H, Nq, Nk), prefix pairs from ``prefix_bias`` or 0.

    None where that takes more than one selection, and where a gradient is asked for or operations are recorded.

    Args:
        prefix_bias: (H or 1, 3), for prefix->patch, patch->prefix, prefix->prefix.
        allocate: gives the memory for the result, from its shape and a tensor of its dtype and device.
    """
    constants = are_constants(*q.size, *k.size) and is_plain()
    if not constants or q.steps != k.steps or (q.ndim == 1 and q.size[0] > LONGEST_SLIDE):
        return None
    learned = any(part is not None and part.requires_grad for part in (table, prefix_bias))
    if (learned and torch.is_grad_enabled()) or (prefix_bias is not None and len(prefix_bias) > len(table)):
        return None
    if prefix_bias is None and _are_few(q, k, table):
        return None
    width = k.num_patches // k.size[0]
    runs = _runs(table, q, k)
    total = _pieces(runs, q.size[0], k.num_patches, width, q.num_prefix, k.num_prefix, allocate)
    if q.num_prefix + k.num_prefix > 0:
        to_patch, to_prefix, between = (0.0,) * 3 if prefix_bias is None else prefix_bias[..., None, None].unbind(1)
        total[:, : q.num_prefix, k.num_prefix :] = to_patch
        total[:, q.num_prefix :, : k.num_prefix] = to_prefix
        total[:, : q.num_prefix, : k.num_prefix] = between
    return total


def _are_few(q: TokenGrid, k: TokenGrid, table: Tensor) -> bool:
    return table.device.type == "cpu" and is_plain() and q.num_patches * k.num_patches <= FEW_PAIRS


@once_per_forward
def _entries_of_pairs(q: TokenGrid, k: TokenGrid, device: Device) -> Tensor:
    """Where each pair of grid tokens finds its value in a table whose axes are flattened, int64 (Pq * Pk,)."""
    entries = torch.zeros((), dtype=torch.int64, device=device)
    for axis in range(q.ndim):
        low, count = offset_range(q, k, axis)
        entries = entries * count + expand_axis(axis_offsets(q, k, axis, device) - low, axis, q, k)
    return entries.flatten()


def _at_steps(table: Tensor, q: TokenGrid) -> Tensor:
    """The entries of a table at offsets that occur between tokens ``q.steps`` apart."""
    for axis, step in enumerate(q.steps):
        if step > 1:
            table = table[(slice(None),) * (1 + axis) + (slice(None, None, step),)]
    return table


def _runs(table: Tensor, q: TokenGrid, k: TokenGrid) -> Tensor:
    """What each query position along all axes but the first sees of all its offsets, last first: (H, X, run).

    Opening an axis R into (Sq, Sk) is a strided view of the reversed table, last query first. With the first axis left
    as it is, (H, R, Sq_2, ..., Sk_2, ...), what a query sees of all its offsets is one run, and row i of the queries
    sees the run from Sq - 1 - i on.
    """
    runs = _at_steps(table, q).flip(tuple(range(1, 1 + q.ndim)))
    for axis in range(1, q.ndim):
        runs = runs.unfold(1 + axis, k.size[axis], 1)
    runs = runs.permute(0, *range(2, 1 + q.ndim), 1, *range(1 + q.ndim, 2 * q.ndim))
    return runs.reshape(table.shape[0], q.num_patches // q.size[0], -1)


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
    """Overlapping pieces of runs lying in reverse: out[h, i, x] = runs[h, X - 1 - x, (rows - 1 - i) step :][:length].

    Args:
        runs: (H, X, (rows - 1) step + length).

    Returns:
        (H, rows, X, length).
    """
    if runs.requires_grad and torch.is_grad_enabled() and not is_transformed():
        return _Slide.apply(runs, rows, length, step)
    if not is_plain():
        runs = runs.flip(1)
        return torch.stack([runs.narrow(2, (rows - 1 - row) * step, length) for row in range(rows)], dim=1)
    return _pieces(runs, rows, length, step).view(runs.shape[0], rows, runs.shape[1], length)


def _pieces(
    runs: Tensor, rows: int, length: int, step: int, top: int = 0, left: int = 0, allocate: Allocate | None = None
) -> Tensor:
    """:func:`slide` by one selection, which all threads share: row x of a matrix begins at entry x step of the runs.

    Returns:
        (H, top + rows X, left + length); the first ``top`` rows and ``left`` columns are not set.
    """
    heads, many, size = runs.shape
    first = _first_rows(heads, many, rows, size // step, top, runs.device)
    shape = (heads, top + rows * many, left + length)
    out = runs.new_empty(shape) if allocate is None else allocate(shape, runs)
    matrix = runs.reshape(-1).unfold(0, length, step)
    torch.index_select(matrix, 0, first, out=out.flatten(0, 1)[:, left:])
    return out


@once_per_forward
def _first_rows(heads: int, many: int, rows: int, per_run: int, top: int, device: Device) -> Tensor:
    """Where each piece begins in the matrix of :func:`_pieces`, int64 (heads * (top + rows * many),)."""
    runs = torch.arange(heads * many, device=device).view(heads, 1, many).flip(2) * per_run
    first = runs + torch.arange(rows - 1, -1, -1, device=device)[:, None]
    return F.pad(first.flatten(1), (top, 0)).flatten()


class _Slide(torch.autograd.Function):
    """``slide`` whose backward adds each piece in place; autograd's own would pad every piece to the full run."""

    @staticmethod
    def forward(ctx: Any, runs: Tensor, rows: int, length: int, step: int) -> Tensor:
        ctx.shape, ctx.step = runs.shape, step
        return slide(runs.detach(), rows, length, step)

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
        return total.flip(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return slide(grad, *ctx.arguments), None, None
