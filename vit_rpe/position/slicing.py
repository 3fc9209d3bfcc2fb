"""Parts of PositionTerms: the terms of some rows of the query grid, or of some heads.

Every part of the terms can be cut exactly, and what is a table over offsets or per axis stays one: a window of the
queries then costs as much memory as the window, not as the grid.

Legend: H heads, Nq/Nk query/key tokens with prefix, Sq/Sk one axis of the query/key grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import AxisBias, Features, PositionTerms, RelativeVectors, of_blocks

Range = tuple[int, int]
Rotation = tuple[Tensor, Tensor]


def window_grid(grid: TokenGrid, first: int, last: int) -> TokenGrid:
    """Rows ``first`` to ``last`` (exclusive) along the first axis; the first window has the prefix tokens."""
    origin, step = grid.origin, grid.steps[0]
    return replace(
        grid,
        size=(last - first, *grid.size[1:]),
        num_prefix=grid.num_prefix if first == 0 else 0,
        origin=(origin[0] + first * step, *origin[1:]),
        extent=grid.lattice,
    )


def window_tokens(grid: TokenGrid, first: int, last: int) -> Range:
    """Where the tokens of :func:`window_grid` lie in the sequence, from and to (exclusive)."""
    width = grid.num_patches // grid.size[0]
    return (0 if first == 0 else grid.num_prefix + first * width), grid.num_prefix + last * width


def take_rows(terms: PositionTerms, first: int, last: int) -> PositionTerms:
    """The terms of the queries in rows ``first`` to ``last`` of their grid; needs ``terms.grids``."""
    assert terms.grids is not None
    q, k = terms.grids
    tokens = window_tokens(q, first, last)
    window = window_grid(q, first, last)
    step = q.steps[0]
    length = (last - first - 1) * step + (k.size[0] - 1) * k.steps[0] + 1
    return terms._replace(
        rotate_q=_each(terms.rotate_q, lambda part: rows_of(part, tokens)),
        bias=None if terms.bias is None else rows_of(terms.bias, tokens),
        visible=None if terms.visible is None else rows_of(terms.visible, tokens),
        axis_bias=tuple(AxisBias(part.bias[:, first:last], 0) if part.axis == 0 else part for part in terms.axis_bias),
        offset_bias=tuple(table.narrow(1, first * step, length) for table in terms.offset_bias),
        on_query=tuple(_vector_rows(part, tokens, (first, last)) for part in terms.on_query),
        on_key=tuple(_vector_rows(part, tokens, (first, last)) for part in terms.on_key),
        on_value=tuple(_vector_rows(part, tokens, (first, last)) for part in terms.on_value),
        grids=(window, k),
        features=tuple(pair._replace(left=rows_of(pair.left, tokens)) for pair in terms.features),
        blocks_q=of_blocks(terms.blocks_q, lambda part: rows_of(part, tokens)),
        polar_q=_each(terms.polar_q, lambda part: rows_of(part, tokens)),
    )


def rows_within(terms: PositionTerms, grids: tuple[TokenGrid, TokenGrid], window: TokenGrid) -> PositionTerms:
    """The terms of the queries on ``window``, a part of the query grid in ``grids`` made by :func:`window_grid`."""
    q = grids[0]
    first = (window.origin[0] - q.origin[0]) // q.steps[0]
    return take_rows(terms._replace(grids=grids), first, first + window.size[0])


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


def _each(rotation: Rotation | None, cut: Callable[[Tensor], Tensor]) -> Rotation | None:
    return None if rotation is None else (cut(rotation[0]), cut(rotation[1]))


def _lead(values: Tensor, first: int, last: int) -> Tensor:
    return values.narrow(0, first, last - first) if values.shape[0] != 1 else values


def _vector_rows(part: RelativeVectors, tokens: Range, rows: Range) -> RelativeVectors:
    if part.axis is None:
        return part._replace(index=rows_of(part.index, tokens))
    return part._replace(index=part.index[rows[0] : rows[1]]) if part.axis == 0 else part
