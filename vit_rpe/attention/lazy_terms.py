"""Terms that are built when attention asks for them: for all queries, or for one window of queries after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.masks import GeometricMask, intersect_geometric
from vit_rpe.position.slicing import block_within, take_block, window_grid
from vit_rpe.position.terms import NOTHING, PositionTerms, combine


class LazyTerms(NamedTuple):
    """What position adds to one attention call, as a function of where the queries lie.

    For an encoding whose terms have an entry per pair of tokens: on a large grid they need never exist all at once.

    Attributes:
        q_grid, k_grid: where all queries and keys lie.
        build: the terms for queries on a part of ``q_grid`` and keys on a part of ``k_grid``, or all of them.
        geometric_mask: hides keys by where they lie; ``build`` does not mention it.
    """

    q_grid: TokenGrid
    k_grid: TokenGrid
    build: Callable[[TokenGrid, TokenGrid], PositionTerms]
    geometric_mask: GeometricMask | None = None

    def whole(self) -> PositionTerms:
        """The terms of all queries."""
        return self.of(self.q_grid, self.k_grid)

    def of(self, q: TokenGrid, k: TokenGrid) -> PositionTerms:
        """The terms for queries on a part of ``q_grid`` and keys on a part of ``k_grid``."""
        terms = self.build(q, k)
        if self.geometric_mask is None:
            return terms
        return combine(PositionTerms(geometric_mask=self.geometric_mask, grids=(q, k)), terms)


Position = PositionTerms | LazyTerms


def terms_of(position: Position) -> PositionTerms:
    """Terms as they are, or built for all queries."""
    return position.whole() if isinstance(position, LazyTerms) else position


def content_terms(position: Position) -> PositionTerms:
    """What is left when all tokens stand at one place (:meth:`PositionTerms.of_content`), for all queries; terms that
    are not built yet are asked for one row of queries only."""
    if not isinstance(position, LazyTerms):
        return position.of_content()
    row = position.build(window_grid(position.q_grid, 0, 1), position.k_grid).of_content()
    return row._replace(geometric_mask=position.geometric_mask, grids=(position.q_grid, position.k_grid))


def combine_later(built: PositionTerms, position: Position) -> Position:
    """Both together, as :func:`combine` does for terms; what is not built yet stays so."""
    if not isinstance(position, LazyTerms):
        return combine(built, position)
    if built is NOTHING:
        return position
    q, k, build, mask = position
    mask = intersect_geometric(mask, built.geometric_mask)
    built = built._replace(geometric_mask=None)

    def both(part: TokenGrid, keys: TokenGrid) -> PositionTerms:
        there = built
        if part is not q or keys is not k:
            there = take_block(built._replace(grids=(q, k)), block_within(q, part), block_within(k, keys))
        return combine(there, build(part, keys))

    return LazyTerms(q, k, both, mask)
