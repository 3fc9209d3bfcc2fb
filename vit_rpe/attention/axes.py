"""What terms that depend on one coordinate at a time add to the logits: features a token has for every coordinate.

A part with an axis adds f(i, j_a), known once query i has a value for every coordinate of the keys along that axis, or
g(j, i_a), likewise with the sides exchanged. N sqrt(N) values instead of N N, from one product with the whole table.

Legend: B batch, H heads, D head width, Sq/Sk tokens of one axis, Pq/Pk grid tokens, Nq/Nk with prefix, R relations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vit_rpe.attention.definition import key_logits, query_logits
from vit_rpe.geometry import TokenGrid
from vit_rpe.terms import PositionTerms, RelativeVectors, dense_bias, pad_prefix


def axis_rows(grid: TokenGrid, axis: int, values: Tensor) -> Tensor:
    """Give every grid token the row of its coordinate: (..., S_a, X) -> (..., P, X)."""
    shape = values.shape
    before, after = grid.size[:axis], grid.size[axis + 1 :]
    values = values.reshape(*shape[:-2], *(1,) * len(before), shape[-2], *(1,) * len(after), shape[-1])
    values = values.expand(*shape[:-2], *before, shape[-2], *after, shape[-1])
    return values.reshape(*shape[:-2], grid.num_patches, shape[-1])


def vector_features(x: Tensor, part: RelativeVectors, grid: TokenGrid, index: Tensor) -> Tensor:
    """<x_i, table[index[i_a, c]]> for every grid token i and coordinate c.

    Args:
        x: (B, H, N, D) on ``grid``, prefix first.
        index: int64 (S_a, C).

    Returns:
        (B, H, P, C).
    """
    assert part.axis is not None
    product = x[:, :, grid.num_prefix :] @ part.table.to(x.dtype).mT  # (B, H, P, R)
    if bool(part.table.shape[1] == 1):
        return product.expand(*product.shape[:-1], index.shape[-1])
    rows = axis_rows(grid, part.axis, index)
    return product.gather(-1, rows.expand(*product.shape[:-1], rows.shape[-1]))


def query_features(q: Tensor, terms: PositionTerms, axis: int, scale: float) -> Tensor | None:
    """What query i adds to keys of each coordinate along one axis, (B or 1, H or 1, Pq, Sk); None if nothing."""
    total: Tensor | None = None
    for part in terms.on_query:
        if part.axis == axis:
            total = _plus(total, vector_features(q, part, _grid(terms, 0), part.index))
    if total is not None:
        total = total * scale
    biases = [part.bias for part in terms.axis_bias if part.axis == axis]
    if biases:
        bias = biases[0] if len(biases) == 1 else torch.stack(torch.broadcast_tensors(*biases)).sum(0)
        total = _plus(total, axis_rows(_grid(terms, 0), axis, bias)[None])
    return total


def key_features(k: Tensor, terms: PositionTerms, axis: int, scale: float) -> Tensor | None:
    """What key j adds to queries of each coordinate along one axis, (B, H, Pk, Sq); None if nothing."""
    total: Tensor | None = None
    for part in terms.on_key:
        if part.axis == axis:
            total = _plus(total, vector_features(k, part, _grid(terms, 1), part.index.mT))
    return None if total is None else total * scale


def axis_logits(q: Tensor, k: Tensor, terms: PositionTerms, scale: float) -> Tensor | None:
    """As :func:`position_logits`, the same sums in another order: per-axis parts meet in one broadcast addition."""
    views = []
    if any(part.axis is not None for part in (*terms.on_query, *terms.on_key)):
        q_grid, k_grid = _grid(terms, 0), _grid(terms, 1)
        for axis in range(q_grid.ndim):
            ones_q = [1] * q_grid.ndim
            ones_k = [1] * k_grid.ndim
            from_query = query_features(q, terms, axis, scale)
            if from_query is not None:
                ones_k[axis] = k_grid.size[axis]
                views.append(from_query.reshape(*from_query.shape[:2], *q_grid.size, *ones_k))
            from_key = key_features(k, terms, axis, scale)
            if from_key is not None:
                ones_q[axis] = q_grid.size[axis]
                from_key = from_key.mT
                views.append(from_key.reshape(*from_key.shape[:2], *ones_q, *k_grid.size))
        terms = terms._replace(axis_bias=())
    total: Tensor | None = None
    if views:
        grid_logits = _broadcast_sum(views, (*q_grid.size, *k_grid.size))
        total = pad_prefix(grid_logits.flatten(2, 1 + q_grid.ndim).flatten(3), q_grid, k_grid)
    for part in terms.on_query:
        if part.axis is None:
            total = _plus(total, query_logits(q, part, part.index) * scale)
    for part in terms.on_key:
        if part.axis is None:
            total = _plus(total, key_logits(k, part, part.index) * scale)
    bias = dense_bias(terms)
    if bias is not None:
        total = _plus(total, bias if bias.ndim == 4 else bias[None])
    return total


def axis_value_output(weights: Tensor, part: RelativeVectors, grid: TokenGrid) -> Tensor:
    """sum_c W[i, c] table[index[i_a, c]] from weights summed per coordinate.

    Args:
        weights: (B, H, Pq, Sk), the attention of grid query i to all keys of coordinate c along the part's axis.
        grid: of the queries.

    Returns:
        (B, H, Pq, D).
    """
    assert part.axis is not None
    relations = part.table.shape[1]
    rows = axis_rows(grid, part.axis, part.index).expand(weights.shape)
    buckets = weights.new_zeros(*weights.shape[:-1], relations).scatter_add(-1, rows, weights)
    return buckets @ part.table.to(weights.dtype)


def _broadcast_sum(views: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    total = views[0]
    for view in views[1:]:
        total = total + view
    return total.expand(*total.shape[:2], *shape)


def _plus(total: Tensor | None, added: Tensor) -> Tensor:
    return added if total is None else total + added


def _grid(terms: PositionTerms, side: int) -> TokenGrid:
    if terms.grids is None:
        raise ValueError("these terms have per-axis parts and no grids: set PositionTerms.grids")
    return terms.grids[side]
