"""Terms that are built when attention asks for them: for all queries, or for one window of queries after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.slicing import rows_within
from vit_rpe.position.terms import PositionTerms, combine


class LazyTerms(NamedTuple):
    """What position adds to one attention call, as a function of where the queries lie.

    For an encoding whose terms have an entry per pair of tokens: on a large grid they need never exist all at once.

    Attributes:
        q_grid, k_grid: where all queries and keys lie.
        build: the terms for queries on a part of ``q_grid`` (or all of it) and keys on ``k_grid``.
    """

    q_grid: TokenGrid
    k_grid: TokenGrid
    build: Callable[[TokenGrid, TokenGrid], PositionTerms]

    def whole(self) -> PositionTerms:
        """The terms of all queries."""
        return self.build(self.q_grid, self.k_grid)


Position = PositionTerms | LazyTerms


def terms_of(position: Position) -> PositionTerms:
    """Terms as they are, or built for all queries."""
    return position.whole() if isinstance(position, LazyTerms) else position


def combine_later(built: PositionTerms, position: Position) -> Position:
    """Both together, as :func:`combine` does for terms; what is not built yet stays so."""
    if not isinstance(position, LazyTerms):
        return combine(built, position)
    q, k, build = position

    def both(part: TokenGrid, keys: TokenGrid) -> PositionTerms:
        there = built if part is q else rows_within(built, (q, keys), part)
        return combine(there, build(part, keys))

    return LazyTerms(q, k, both)
