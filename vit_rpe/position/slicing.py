"""Parts of PositionTerms: the terms of a block of queries and a block of keys, or of some heads.

Every part of the terms can be cut exactly, and what is a table over offsets or per axis stays one: a block then costs
as much memory as the block, not as the grid.

Legend: H heads, Nq/Nk query/key tokens with prefix, Sq/Sk one axis of the query/key grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import AxisBias, Features, PositionTerms, RelativeVectors, of_blocks

Range = tuple[int, int]
Rotation = tuple[Tensor, Tensor]


class Block(NamedTuple):
    """A box of tokens of a grid: from and to (exclusive) along every axis, with the prefix tokens or without."""

    ranges: tuple[Range, ...]
    with_prefix: bool


def whole_block(grid: TokenGrid) -> Block:
    """All tokens of a grid."""
    return Block(tuple((0, size) for size in grid.size), True)


def row_block(grid: TokenGrid, first: int, last: int) -> Block:
    """Rows ``first`` to ``last`` (exclusive) along the first axis; the first rows have the prefix tokens."""
    return Block(((first, last), *((0, size) for size in grid.size[1:])), first == 0)


def block_grid(grid: TokenGrid, block: Block) -> TokenGrid:
    """Where the tokens of a block lie."""
    if block == whole_block(grid):
        return grid
    return replace(
        grid,
        size=tuple(last - first for first, last in block.ranges),
        num_prefix=grid.num_prefix if block.with_prefix else 0,
        origin=tuple(
            start + first * step for start, (first, _), step in zip(grid.origin, block.ranges, grid.steps, strict=True)
        ),
        extent=grid.lattice,
    )


def block_within(grid: TokenGrid, part: TokenGrid) -> Block:
    """Which block of ``grid`` the grid ``part`` is, made by :func:`block_grid`."""
    axes = zip(part.origin, grid.origin, grid.steps, part.size, strict=True)
    ranges = tuple(((here - start) // step, (here - start) // step + size) for here, start, step, size in axes)
    return Block(ranges, part.num_prefix == grid.num_prefix)


def window_grid(grid: TokenGrid, first: int, last: int) -> TokenGrid:
    """Where the tokens of :func:`row_block` lie."""
    return block_grid(grid, row_block(grid, first, last))


def window_tokens(grid: TokenGrid, first: int, last: int) -> Range:
    """Where the tokens of :func:`row_block` lie in the sequence, from and to (exclusive)."""
    width = grid.num_patches // grid.size[0]
    return (0 if first == 0 else grid.num_prefix + first * width), grid.num_prefix + last * width


def run_of(grid: TokenGrid, block: Block) -> Range | None:
    """From and to (exclusive) where the tokens of a block follow one another in the sequence, else None."""
    first, last = block.ranges[0]
    if block.ranges[1:] != whole_block(grid).ranges[1:] or (block.with_prefix and grid.num_prefix and first > 0):
        return None
    start, stop = window_tokens(grid, first, last)
    return start if block.with_prefix else max(start, grid.num_prefix), stop


def cells_of(values: Tensor, dim: int, grid: TokenGrid, block: Block) -> Tensor:
    """The grid tokens of a block as a view: dimension ``dim`` (negative), all tokens, becomes the axes of the block."""
    dim += values.ndim
    cells = values.narrow(dim, grid.num_prefix, grid.num_patches)
    cells = cells.view(*cells.shape[:dim], *grid.size, *cells.shape[dim + 1 :])
    for axis, (first, last) in enumerate(block.ranges):
        cells = cells.narrow(dim + axis, first, last - first)
    return cells


def tokens_of(values: Tensor, dim: int, grid: TokenGrid, block: Block) -> Tensor:
    """The tokens of a block along dimension ``dim`` (negative); what has one entry for all tokens stays as it is."""
    if values.shape[dim] == 1:
        return values
    run = run_of(grid, block)
    if run is not None:
        return values.narrow(dim, run[0], run[1] - run[0])
    cells = cells_of(values, dim, grid, block).flatten(dim - grid.ndim + 1, dim)
    if not block.with_prefix or grid.num_prefix == 0:
        return cells
    return torch.cat([values.narrow(dim, 0, grid.num_prefix), cells], dim=dim)


def take_block(terms: PositionTerms, queries: Block, keys: Block) -> PositionTerms:
    """The terms of a block of queries and a block of keys; needs ``terms.grids``."""
    assert terms.grids is not None
    q, k = terms.grids
    whole = keys == whole_block(k)
    of_q = partial(tokens_of, dim=-2, grid=q, block=queries)
    of_k: Callable[[Tensor], Tensor] = _as_is if whole else partial(tokens_of, dim=-2, grid=k, block=keys)

    def pairs(values: Tensor) -> Tensor:
        return of_q(values) if whole else tokens_of(of_q(values), -1, k, keys)

    def vectors(parts: tuple[RelativeVectors, ...]) -> tuple[RelativeVectors, ...]:
        cuts = (
            pairs(part.index) if part.axis is None else _axis_block(part.index, part.axis, queries, keys)
            for part in parts
        )
        return tuple(part._replace(index=cut) for part, cut in zip(parts, cuts, strict=True))

    return terms._replace(
        rotate_q=_each(terms.rotate_q, of_q),
        rotate_k=_each(terms.rotate_k, of_k),
        bias=None if terms.bias is None else pairs(terms.bias),
        visible=None if terms.visible is None else pairs(terms.visible),
        axis_bias=tuple(
            AxisBias(_axis_block(part.bias, part.axis, queries, keys), part.axis) for part in terms.axis_bias
        ),
        offset_bias=tuple(_offset_block(table, q, k, queries, keys) for table in terms.offset_bias),
        offset_visible=None
        if terms.offset_visible is None
        else _offset_block(terms.offset_visible, q, k, queries, keys),
        on_query=vectors(terms.on_query),
        on_key=vectors(terms.on_key),
        on_value=vectors(terms.on_value),
        grids=(block_grid(q, queries), k if whole else block_grid(k, keys)),
        features=tuple(Features(of_q(pair.left), of_k(pair.right)) for pair in terms.features),
        blocks_q=of_blocks(terms.blocks_q, of_q),
        blocks_k=of_blocks(terms.blocks_k, of_k),
        polar_q=_each(terms.polar_q, of_q),
        polar_k=_each(terms.polar_k, of_k),
    )


def take_rows(terms: PositionTerms, first: int, last: int) -> PositionTerms:
    """The terms of the queries in rows ``first`` to ``last`` of their grid; needs ``terms.grids``."""
    assert terms.grids is not None
    q, k = terms.grids
    return take_block(terms, row_block(q, first, last), whole_block(k))


def take_heads(terms: PositionTerms, first: int, last: int) -> PositionTerms:
    """The terms of heads ``first`` to ``last`` (exclusive)."""

    def tables(parts: tuple[RelativeVectors, ...]) -> tuple[RelativeVectors, ...]:
        return tuple(part._replace(table=_lead(part.table, first, last)) for part in parts)

    return terms._replace(
        rotate_q=_each(terms.rotate_q, lambda part: heads_of(part, first, last)),
        rotate_k=_each(terms.rotate_k, lambda part: heads_of(part, first, last)),
        bias=None if terms.bias is None else heads_of(terms.bias, first, last),
        visible=None if terms.visible is None else heads_of(terms.visible, first, last),
        axis_bias=tuple(AxisBias(_lead(part.bias, first, last), part.axis) for part in terms.axis_bias),
        offset_bias=tuple(_lead(table, first, last) for table in terms.offset_bias),
        offset_visible=None if terms.offset_visible is None else _lead(terms.offset_visible, first, last),
        prefix_bias=None if terms.prefix_bias is None else _lead(terms.prefix_bias, first, last),
        on_query=tables(terms.on_query),
        on_key=tables(terms.on_key),
        on_value=tables(terms.on_value),
        features=tuple(Features(*(heads_of(side, first, last) for side in pair)) for pair in terms.features),
        blocks_q=of_blocks(terms.blocks_q, lambda part: heads_of(part, first, last)),
        blocks_k=of_blocks(terms.blocks_k, lambda part: heads_of(part, first, last)),
        polar_q=_each(terms.polar_q, lambda part: heads_of(part, first, last)),
        polar_k=_each(terms.polar_k, lambda part: heads_of(part, first, last)),
    )


def rows_of(values: Tensor, tokens: Range) -> Tensor:
    """Rows of (..., Nq, X); what has one row for all queries stays as it is."""
    return values.narrow(-2, tokens[0], tokens[1] - tokens[0]) if values.shape[-2] != 1 else values


def heads_of(values: Tensor, first: int, last: int) -> Tensor:
    """Heads of (..., H, N, X); what has none, or one for all, stays as it is."""
    return values.narrow(-3, first, last - first) if values.ndim > 2 and values.shape[-3] != 1 else values


def _as_is(values: Tensor) -> Tensor:
    return values


def _each(rotation: Rotation | None, cut: Callable[[Tensor], Tensor]) -> Rotation | None:
    return None if rotation is None else (cut(rotation[0]), cut(rotation[1]))


def _lead(values: Tensor, first: int, last: int) -> Tensor:
    return values.narrow(0, first, last - first) if values.shape[0] != 1 else values


def _axis_block(values: Tensor, axis: int, queries: Block, keys: Block) -> Tensor:
    """Rows and columns of (..., Sq, Sk)."""
    return values[..., slice(*queries.ranges[axis]), slice(*keys.ranges[axis])]


def _offset_block(table: Tensor, q: TokenGrid, k: TokenGrid, queries: Block, keys: Block) -> Tensor:
    """The entries of a table (H, R_1, ..., R_n) at offsets that occur between the blocks."""
    for axis, ((first, last), (first_k, last_k)) in enumerate(zip(queries.ranges, keys.ranges, strict=True)):
        step, step_k = q.steps[axis], k.steps[axis]
        length = (last - 1 - first) * step + (last_k - 1 - first_k) * step_k + 1
        table = table.narrow(1 + axis, first * step + (k.size[axis] - last_k) * step_k, length)
    return table
