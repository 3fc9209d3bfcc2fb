"""What an oracle is told about one pair of tokens, and what it answers.

An oracle is a plain function written from the paper, for one query, one key and one head. It may read the parameters
and options of the encoding it is given; it never calls the encoding's forward pass or helpers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from vit_rpe.encodings import PositionEncoding
from vit_rpe.position.geometry import TokenGrid


class Pair(NamedTuple):
    """One query, one key, one head.

    Attributes:
        head: its number.
        q_pos, k_pos: lattice coordinates, one integer per axis; None for a prefix token.
        q, k: their vectors (D,).
        s: the softmax scale.
        q_grid, k_grid: the grids they lie on.
        q_number, k_number: where they are in their sequences.
        x: what the query's token holds, (C,), for encodings that read it.
    """

    head: int
    q_pos: tuple[int, ...] | None
    k_pos: tuple[int, ...] | None
    q: Tensor
    k: Tensor
    s: float
    q_grid: TokenGrid
    k_grid: TokenGrid
    q_number: int = 0
    k_number: int = 0
    x: Tensor | None = None

    @property
    def delta(self) -> tuple[int, ...] | None:
        """Query minus key per axis; None if a prefix token takes part."""
        if self.q_pos is None or self.k_pos is None:
            return None
        return tuple(i - j for i, j in zip(self.q_pos, self.k_pos, strict=True))

    @property
    def prefix_case(self) -> int:
        """Which entry of a learned prefix bias: 0 prefix->patch, 1 patch->prefix, 2 prefix->prefix."""
        assert self.q_pos is None or self.k_pos is None
        if self.q_pos is None:
            return 2 if self.k_pos is None else 0
        return 1

    @property
    def content(self) -> Tensor:
        """s <q, k>, the logit without any position."""
        return self.s * (self.q * self.k).sum()


class Answer(NamedTuple):
    """The whole logit of a pair (content included), whether it is seen, and a vector to add to the key's value."""

    logit: Tensor
    visible: bool = True
    value: Tensor | None = None


Oracle = Callable[[PositionEncoding, Pair], Answer]


def common(pair: Pair) -> list[int]:
    """Size of the lattice that both grids are parts of: what they say, or as far as their tokens reach."""
    sizes = []
    for grid in (pair.q_grid, pair.k_grid):
        origin, steps = grid.origin, grid.stride or (1,) * len(grid.size)
        reach = [first + (size - 1) * step + 1 for first, size, step in zip(origin, grid.size, steps, strict=True)]
        sizes.append(grid.extent or reach)
    return [max(a, b) for a, b in zip(*sizes, strict=True)]


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))
