"""Which queries attend together, to which keys, and how many heads at a time.

A window of the query grid sees all keys, unless a mask by geometry says that some are out of reach of all its queries.

Legend: B batch, H heads, Nq/Nk query/key tokens with prefix.
"""

from __future__ import annotations

from itertools import product
from math import gcd, prod
from typing import NamedTuple

import torch
from torch import Tensor

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.masks import GeometricMask
from vit_rpe.position.slicing import Block, Range, row_block, whole_block

BLOCK, BLOCKS = 256, 3  # torch's fused CPU kernel works on blocks of so many queries where there are 3 of them or more
BUDGET = 2**26  # bytes of one window's bias of one head, which may leave it fewer queries
GROUP = {"cpu": 2**26, "cuda": 2**28}
"""Bytes of one window's bias of several heads. The fewer the calls, the less two threads wait for one another where
others keep the cores busy; what stays in cache is 4 % faster where nobody does."""
LEARNING = 2**24
"""The same where gradients are asked for on the CPU: larger blocks leave holes in the heap."""


Grids = tuple[TokenGrid, TokenGrid]


class Window(NamedTuple):
    """Queries that attend together, and the keys that some of them see.

    Attributes:
        shape: sizes and distance of both: windows of one shape have the same mask and the same offsets.
    """

    queries: Block
    keys: Block
    shape: tuple[int, ...]


class Plan(NamedTuple):
    """Windows, which hold every query once, and heads in a group.

    Attributes:
        in_turn: the queries of the windows follow one another as in the sequence, prefix tokens in the first; otherwise
            windows of one shape do.
        prefix: for prefix queries apart from all windows, with one query of the grid too many; None where there are
            none, or the first window has them.
    """

    windows: list[Window]
    heads: int
    in_turn: bool = True
    prefix: Window | None = None


def plan_windows(q: Tensor, k: Tensor, grids: Grids, *, batch: int) -> Plan:
    """Rows of the query grid at a time, for terms that can be cut into windows and heads.

    Args:
        batch: of the additive mask, 1 where it is the same for all samples.
    """
    grid = grids[0]
    width = grid.num_patches // grid.size[0]
    row = max(1, batch * width * k.shape[2] * q.element_size())  # bytes of one row of one head; no sample has none
    queries = BLOCK * _blocks(q)
    rows = max(1, min(grid.size[0], -(-queries // width), BUDGET // row))
    return Plan(_of_rows(grids, rows, None), max(1, min(q.shape[1], group(q) // (row * rows))))


def plan_built_windows(q: Tensor, k: Tensor, grids: Grids) -> Plan:
    """Rows of the query grid at a time, for terms that come for all heads at once."""
    grid = grids[0]
    width = grid.num_patches // grid.size[0]
    row = q.shape[1] * width * k.shape[2] * q.element_size()
    return Plan(_of_rows(grids, max(1, min(grid.size[0], group(q) // row)), None), q.shape[1])


def plan_local_windows(
    q: Tensor, grids: Grids, mask: GeometricMask, *, batch: int = 1, all_heads: bool = False
) -> Plan:
    """Boxes of the query grid where the mask has a radius, else rows, each with the keys within reach.

    A window of t queries an axis reads t + 2 r keys an axis: the smaller, the fewer, and the more calls.

    Args:
        batch: of the additive mask, 1 where it is the same for all samples.
        all_heads: terms come for all heads at once.
    """
    queries = BLOCK if mask.window is not None else BLOCK * BLOCKS
    of_pair = batch * q.element_size() * (q.shape[1] if all_heads else 1)
    most = group(q) if all_heads else BUDGET
    while True:
        windows = _local_windows(grids, mask, queries)
        largest = max(1, of_pair * max(_pairs(window, grids) for window in windows))
        if largest <= most or queries == 1:
            break
        queries //= 2
    heads = q.shape[1] if all_heads else max(1, min(q.shape[1], group(q) // largest))
    prefix = None
    if mask.window is not None and grids[0].num_prefix:
        prefix = _reaching(grids, Block(((0, 1),) * grids[0].ndim, True), mask)
    return Plan(windows, heads, in_turn=mask.window is None, prefix=prefix)


def pairs_of(plan: Plan, grids: Grids) -> int:
    """Pairs of a query and a key that the windows read."""
    return sum(_pairs(window, grids) for window in plan.windows)


def group(q: Tensor) -> int:
    """Bytes of the bias of a window and a group of heads."""
    most = GROUP.get(q.device.type, GROUP["cpu"])
    return min(most, LEARNING) if torch.is_grad_enabled() and q.device.type == "cpu" else most


def _blocks(q: Tensor) -> int:
    """Blocks of queries of one head in a window: with all samples, as many as occupy every thread equally often."""
    if q.device.type != "cpu" or torch.compiler.is_compiling():
        return BLOCKS
    threads = torch.get_num_threads()
    step = threads // gcd(threads, q.shape[0])
    return -(-BLOCKS // step) * step


def _local_windows(grids: Grids, mask: GeometricMask, queries: int) -> list[Window]:
    """Windows of about so many queries."""
    grid = grids[0]
    if mask.window is None:
        width = grid.num_patches // grid.size[0]
        return _of_rows(grids, max(1, min(grid.size[0], -(-queries // width))), mask)
    windows = [_reaching(grids, box, mask) for box in _boxes(grid, queries)]
    return sorted(windows, key=lambda window: window.shape)


def _pairs(window: Window, grids: Grids) -> int:
    return num_tokens(window.queries, grids[0]) * num_tokens(window.keys, grids[1])


def _of_rows(grids: Grids, rows: int, mask: GeometricMask | None) -> list[Window]:
    grid = grids[0]
    spans = [(first, min(first + rows, grid.size[0])) for first in range(0, grid.size[0], rows)]
    return [_reaching(grids, row_block(grid, *span), mask) for span in spans]


def _boxes(grid: TokenGrid, queries: int) -> list[Block]:
    """The grid in boxes of about so many tokens, as square as it allows, without prefix tokens."""
    sides = [1] * grid.ndim
    left, axes = float(queries), sorted(range(grid.ndim), key=lambda axis: grid.size[axis])
    for number, axis in enumerate(axes):
        most = max(1, min(grid.size[axis], round(left ** (1 / (len(axes) - number)))))
        sides[axis] = -(-grid.size[axis] // -(-grid.size[axis] // most))  # the same number of boxes, alike
        left /= sides[axis]
    spans = (
        [(first, min(first + side, size)) for first in range(0, size, side)]
        for side, size in zip(sides, grid.size, strict=True)
    )
    return [Block(ranges, with_prefix=False) for ranges in product(*spans)]


def _reaching(grids: Grids, queries: Block, mask: GeometricMask | None) -> Window:
    """A window with the keys that some of its queries see, one row of keys at least."""
    q, k = grids
    keys = whole_block(k)
    if mask is not None and (mask.is_causal or not (queries.with_prefix and q.num_prefix)):  # a prefix token sees all
        radii = mask.radii(q.ndim) or (None,) * q.ndim
        bounds = []
        for axis, (first, last) in enumerate(queries.ranges):
            low: int | None = None
            high: int | None = None
            nearest, farthest = (q.origin[axis] + place * q.steps[axis] for place in (first, last - 1))
            radius = radii[axis]
            if radius is not None:
                low, high = nearest - radius, farthest + radius
            if mask.is_causal and axis == 0:
                high = farthest if high is None else min(high, farthest)
            bounds.append(_range(k, axis, low, high))
        keys = Block(tuple(bounds), True)
    shape = [int(queries.with_prefix)]
    for (first, last), (first_k, last_k), step, step_k in zip(
        queries.ranges, keys.ranges, q.steps, k.steps, strict=True
    ):
        shape += last - first, last_k - first_k, first * step - first_k * step_k
    return Window(queries, keys, tuple(shape))


def _range(grid: TokenGrid, axis: int, low: int | None, high: int | None) -> Range:
    """Tokens of an axis whose positions lie from ``low`` to ``high``, both included."""
    start, step, size = grid.origin[axis], grid.steps[axis], grid.size[axis]
    first = 0 if low is None else min(max(-(-(low - start) // step), 0), size - 1)
    last = size if high is None else min((high - start) // step + 1, size)
    return first, max(last, first + 1)


def num_tokens(block: Block, grid: TokenGrid) -> int:
    """Tokens of a block."""
    return prod([last - first for first, last in block.ranges]) + (grid.num_prefix if block.with_prefix else 0)
