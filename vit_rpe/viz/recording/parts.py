"""An attention call part by part: some windows, some rows of the query grid, so that no map of all pairs is made.

Legend: B samples, W windows of one image, H heads, N tokens of a call.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vit_rpe.attention import AttentionCall, LazyTerms
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families import Sight
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.slicing import rows_of, take_rows, window_grid, window_tokens
from vit_rpe.position.terms import PositionTerms

MOST_WEIGHTS = 2**24
"""Weights that one part has at most, unless a single row of one window has more."""


def parts_of(call: AttentionCall, sight: Sight) -> Iterator[tuple[AttentionCall, slice, slice]]:
    """A call in parts, with the windows (of W) and the query tokens (of a window) of each."""
    windows, grid = len(sight.origins), sight.q_grid
    batch, heads = call.q.shape[0] // windows, call.q.shape[1]
    each = batch * heads * call.q.shape[2] * call.k.shape[2]  # of one window
    together = max(1, MOST_WEIGHTS // each)
    if each <= MOST_WEIGHTS or sight.pools:
        for first in range(0, windows, together):
            some = slice(first, min(first + together, windows))
            yield window_rows(call, windows, some), some, slice(0, call.q.shape[2])
        return
    rows = max(1, MOST_WEIGHTS * grid.size[0] // each)
    for window in range(windows):
        some = slice(window, window + 1)
        here = window_rows(call, windows, some)
        for first in range(0, grid.size[0], rows):
            part, tokens = grid_rows(here, sight, first, min(first + rows, grid.size[0]))
            yield part, some, tokens


def window_rows(call: AttentionCall, windows: int, some: slice) -> AttentionCall:
    """The call of some windows of every sample, (B w, H, N, D)."""
    if some == slice(0, windows):
        return call
    here = torch.arange(call.q.shape[0], device=call.q.device).view(-1, windows)[:, some].flatten()

    def cut(values: Tensor) -> Tensor:
        return values[here] if values.shape[0] == call.q.shape[0] else values

    visible = None if call.visible is None else cut(call.visible)
    return call._replace(q=cut(call.q), k=cut(call.k), v=cut(call.v), visible=visible)


def grid_rows(call: AttentionCall, sight: Sight, first: int, last: int) -> tuple[AttentionCall, slice]:
    """The call of the queries in rows ``first`` to ``last`` of their grid, and which tokens they are.

    The position may know the queries by another grid of the same size than the image does (tokens that a stride left).
    """
    grid = call.q_grid or sight.q_grid
    tokens = window_tokens(grid, first, last)
    part = call._replace(
        q=call.q[:, :, slice(*tokens)],
        position=_position_of_rows(call.position, grid, call.k_grid or sight.k_grid, first, last),
        visible=None if call.visible is None else rows_of(call.visible, tokens),
        q_grid=window_grid(grid, first, last),
    )
    return part, slice(*tokens)


def first_terms(position: Position) -> PositionTerms:
    """What position adds for the first row of queries, or for all where that exists already."""
    if isinstance(position, LazyTerms):
        return position.build(window_grid(position.q_grid, 0, 1), position.k_grid)
    return position


def _position_of_rows(position: Position, q: TokenGrid, k: TokenGrid, first: int, last: int) -> PositionTerms:
    if isinstance(position, LazyTerms):
        return position.of(window_grid(position.q_grid, first, last), position.k_grid)
    return take_rows(position._replace(grids=(q, k)), first, last)
