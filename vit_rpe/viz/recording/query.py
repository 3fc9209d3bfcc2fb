"""Which query's row of a map is meant: a token, a grid position, the class token, or the mean.

Legend: B batch, H heads, Nq/Nk query/key tokens with prefix.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vit_rpe.checks import check_type, closest, plain
from vit_rpe.position.geometry import TokenGrid

Query = int | tuple[int, ...] | str
"""A token's number in the sequence, a grid position such as ``(5, 9)``, ``"class"`` or ``"mean"``."""


def as_query(given: Any) -> Query:
    """A query that a person gives, with lists and NumPy's numbers as Python's own.

    Raises:
        ValueError: none of the kinds of a query; whether a layer has it is asked later.
    """
    query = tuple(given) if isinstance(given, list) or getattr(given, "ndim", 0) == 1 else given
    query = plain(query)
    if isinstance(query, str) and query in ("class", "mean"):
        return query
    try:
        check_type("query", query, int | tuple[int, ...])
    except ValueError:
        hint = closest(query, ("class", "mean")) if isinstance(query, str) else ""
        raise ValueError(
            f"query must be a token's number, a grid position such as (5, 9), 'class' or 'mean', got {given!r}{hint}"
        ) from None
    return query


def parse_query(text: str) -> Query:
    """``"5,9"`` to (5, 9), ``"7"`` to (7,); ``"class"`` and ``"mean"`` stay.

    Raises:
        ValueError: anything else.
    """
    if text in ("class", "mean"):
        return text
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"query {text!r} must be 'class', 'mean' or a grid position such as '5,9'") from None


def query_token(query: int | tuple[int, ...] | str, grid: TokenGrid, *, has_class_token: bool) -> int:
    """The number of one token in the sequence.

    Raises:
        ValueError: outside the grid, or the class token of a model without one.
    """
    if query == "class":
        if not has_class_token:
            raise ValueError("query 'class' needs a model with a class token: use 'mean' or a grid position")
        return 0
    if isinstance(query, str):
        raise ValueError(f"query {query!r} names no single token: use 'class' or a grid position")
    if isinstance(query, int):
        if not 0 <= query < grid.num_tokens:
            raise ValueError(f"query {query} is outside the sequence of {grid.num_tokens} tokens")
        return query
    if len(query) != grid.ndim:
        given = ",".join(map(str, query))
        raise ValueError(f"query {given} must name {grid.ndim} numbers, one per axis of {_size_text(grid)} tokens")
    if any(not 0 <= at < size for at, size in zip(query, grid.size, strict=True)):
        raise ValueError(f"query {','.join(map(str, query))} is outside the grid of {_size_text(grid)} tokens")
    token = 0
    for at, size in zip(query, grid.size, strict=True):
        token = token * size + at
    return grid.num_prefix + token


def pick_query(weights: Tensor, query: Query, grid: TokenGrid, *, has_class_token: bool) -> Tensor:
    """Where one query looks, the row (B, H, Nk) of weights (B, H, Nq, Nk); for ``"mean"`` the mean over grid tokens."""
    if query == "mean":
        return weights[:, :, grid.num_prefix :].mean(dim=2)
    return weights[:, :, query_token(query, grid, has_class_token=has_class_token)]


def _size_text(grid: TokenGrid) -> str:
    return " x ".join(map(str, grid.size))
