"""Terms that depend on one coordinate at a time, as channels: their share of the logits is a product left right^T.

A part with an axis adds f(i, j_a): query i has a value for every coordinate of the keys along that axis, the key knows
which coordinate it has. Or g(j, i_a), with the sides exchanged. So

    sum_a f_a[i, j_a] + g_a[j, i_a]  =  < [f_a[i], onehot(i_a)], [onehot(j_a), g_a[j]] >

with N sqrt(N) values instead of N N. Prefix tokens have zero channels, but for two that carry the prefix scalars.

Legend: B batch, H heads, D head width, Sq/Sk tokens of one axis, Pq/Pk grid tokens, Nq/Nk with prefix, R relations.
"""

from __future__ import annotations

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.attention.definition import key_logits, query_logits
from vit_rpe.geometry import TokenGrid
from vit_rpe.terms import PositionTerms, RelativeVectors, dense_bias, pad_prefix, with_prefix

Channels = tuple[Tensor, Tensor]

LONG_AXIS = 32
"""Keys along the last axis from which adding the features over pairs beats the product of channels."""


def axis_logits(q: Tensor, k: Tensor, terms: PositionTerms, scale: float) -> Tensor | None:
    """As :func:`position_logits`, (B or 1, H or 1, Nq, Nk): per-axis parts by their channels, the rest as defined."""
    total: Tensor | None = None
    if has_axis_logits(terms):
        length = grids_of(terms)[1].size[-1]
        if type(length) is int and length >= LONG_AXIS:
            total = broadcast_logits(q, k, terms, scale)
        else:
            left, right = channels(q, k, terms, scale)
            total = left @ right.mT
        terms = terms._replace(axis_bias=(), prefix_bias=None)
    for part in terms.on_query:
        if part.axis is None:
            added = query_logits(q, part, part.index) * scale
            total = added if total is None else total + added
    for part in terms.on_key:
        if part.axis is None:
            added = key_logits(k, part, part.index) * scale
            total = added if total is None else total + added
    bias = dense_bias(terms)
    if bias is None:
        return total
    bias = bias if bias.ndim == 4 else bias[None]
    return bias if total is None else total + bias


def has_axis_logits(terms: PositionTerms) -> bool:
    """Whether some logits depend on one coordinate at a time."""
    return bool(terms.axis_bias) or any(part.axis is not None for part in (*terms.on_query, *terms.on_key))


def channels(q: Tensor, k: Tensor, terms: PositionTerms, scale: float) -> Channels:
    """Left (B or 1, H or 1, Nq, F) and right (B or 1, H or 1, Nk, F) for all per-axis logits and prefix scalars."""
    q_grid, k_grid = grids_of(terms)
    left, right = [], []
    for axis in range(q_grid.ndim):
        from_query = query_features(q, terms, axis, scale)
        if from_query is not None:
            left.append(_padded(from_query, q, q_grid))
            right.append(_padded(one_hot(k_grid, axis, k), k, k_grid))
        from_key = key_features(k, terms, axis, scale)
        if from_key is not None:
            marks = one_hot(q_grid, axis, q)
            left.append(_padded(marks, q, q_grid))
            right.append(_padded(from_key, k, k_grid))
    for part in terms.on_key:
        if part.axis is not None and is_constant(part):  # the same for every query: one channel
            content = k[:, :, k_grid.num_prefix :] @ part.table.to(k.dtype).mT * scale
            left.append(_padded(torch.ones(1, 1, q_grid.num_patches, 1, device=q.device), q, q_grid))
            right.append(_padded(content, k, k_grid))
    if terms.prefix_bias is not None:
        left.append(_prefix_of_queries(terms.prefix_bias, q, q_grid))
        right.append(_prefix_of_keys(k, k_grid))
    return joined(left), joined(right)


def broadcast_logits(q: Tensor, k: Tensor, terms: PositionTerms, scale: float) -> Tensor:
    """The per-axis logits and prefix scalars by addition over all pairs, (B or 1, H or 1, Nq, Nk)."""
    q_grid, k_grid = grids_of(terms)
    views = []
    for axis in range(q_grid.ndim):
        from_query = query_features(q, terms, axis, scale)
        if from_query is not None:
            along = [1] * k_grid.ndim
            along[axis] = k_grid.size[axis]
            views.append(from_query.reshape(*from_query.shape[:2], *q_grid.size, *along))
        from_key = key_features(k, terms, axis, scale)
        if from_key is not None:
            along = [1] * q_grid.ndim
            along[axis] = q_grid.size[axis]
            views.append(from_key.mT.reshape(*from_key.shape[:2], *along, *k_grid.size))
    for part in terms.on_key:
        if part.axis is not None and is_constant(part):
            content = k[:, :, k_grid.num_prefix :] @ part.table.to(k.dtype).mT * scale
            views.append(content.reshape(*content.shape[:2], *(1,) * q_grid.ndim, *k_grid.size))
    total = sum(views[1:], start=views[0]).to(q.dtype)
    total = total.expand(*total.shape[:2], *q_grid.size, *k_grid.size)
    total = total.reshape(*total.shape[:2], q_grid.num_patches, k_grid.num_patches)
    if terms.prefix_bias is None:
        return pad_prefix(total, q_grid, k_grid)
    return with_prefix(total, q_grid, k_grid, terms.prefix_bias)


def query_features(q: Tensor, terms: PositionTerms, axis: int, scale: float) -> Tensor | None:
    """What query i adds to keys of each coordinate along one axis, (B or 1, H or 1, Pq, Sk); None if nothing."""
    total: Tensor | None = None
    for part in terms.on_query:
        if part.axis == axis:
            added = vector_features(q, part, grids_of(terms)[0], part.index)
            total = added if total is None else total + added
    if total is not None:
        total = total * scale
    for bias in terms.axis_bias:
        if bias.axis == axis:
            added = axis_rows(grids_of(terms)[0], axis, bias.bias)[None]
            total = added if total is None else total + added
    return total


def key_features(k: Tensor, terms: PositionTerms, axis: int, scale: float) -> Tensor | None:
    """What key j adds to queries of each coordinate along one axis, (B, H, Pk, Sq); None if nothing."""
    total: Tensor | None = None
    for part in terms.on_key:
        if part.axis == axis and not is_constant(part):
            added = vector_features(k, part, grids_of(terms)[1], part.index.mT)
            total = added if total is None else total + added
    return None if total is None else total * scale


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
    rows = axis_rows(grid, part.axis, index)
    return product.gather(-1, rows.expand(*product.shape[:-1], rows.shape[-1]))


def axis_value_output(weights: Tensor, part: RelativeVectors, grid: TokenGrid) -> Tensor:
    """sum_c W[i, c] table[index[i_a, c]] from weights summed per coordinate.

    Args:
        weights: (B, H, Pq, Sk), the attention of grid query i to all keys of coordinate c along the part's axis.
        grid: of the queries.

    Returns:
        (B, H, Pq, D).
    """
    assert part.axis is not None
    rows = axis_rows(grid, part.axis, part.index).expand(weights.shape)
    buckets = weights.new_zeros(*weights.shape[:-1], part.table.shape[1]).scatter_add(-1, rows, weights)
    return buckets @ part.table.to(weights.dtype)


def axis_rows(grid: TokenGrid, axis: int, values: Tensor) -> Tensor:
    """Give every grid token the row of its coordinate: (..., S_a, X) -> (..., P, X)."""
    # Not a reshaped repetition: merging its strides would compare sizes, which may be symbols.
    after = prod(grid.size[axis + 1 :])
    line = torch.arange(grid.num_patches, device=values.device) // after
    coordinate = line - line // grid.size[axis] * grid.size[axis]  # ONNX has no remainder by a symbol
    return values.index_select(-2, coordinate)


def one_hot(grid: TokenGrid, axis: int, like: Tensor) -> Tensor:
    """Which coordinate every grid token has along one axis, (1, 1, P, S)."""
    return axis_rows(grid, axis, torch.eye(grid.size[axis], dtype=like.dtype, device=like.device))[None, None]


def is_constant(part: RelativeVectors) -> bool:
    """One relation for all pairs of grid tokens."""
    return type(part.table.shape[1]) is int and part.table.shape[1] == 1


def joined(parts: list[Tensor]) -> Tensor:
    """Channels side by side; batch and heads are repeated only where some part has them."""
    if len(parts) == 1:
        return parts[0]
    lead = torch.broadcast_shapes(*(part.shape[:2] for part in parts))
    return torch.cat([part.expand(*lead, -1, -1) for part in parts], dim=-1)


def grids_of(terms: PositionTerms) -> tuple[TokenGrid, TokenGrid]:
    """The query and key grid of terms with per-axis parts."""
    if terms.grids is None:
        raise ValueError("these terms have per-axis parts and no grids: set PositionTerms.grids")
    return terms.grids


def _padded(features: Tensor, x: Tensor, grid: TokenGrid) -> Tensor:
    """Zero channels for the prefix tokens in front: (..., P, F) -> (..., N, F) in the dtype of ``x``."""
    features = features.to(x.dtype)
    return F.pad(features, (0, 0, grid.num_prefix, 0)) if grid.num_prefix else features


def _prefix_of_queries(prefix_bias: Tensor, q: Tensor, grid: TokenGrid) -> Tensor:
    """What a query adds to grid keys and to prefix keys, (1, H or 1, Nq, 2)."""
    to_patch, to_prefix, between = prefix_bias.to(q.dtype).unbind(1)  # (H or 1,)
    of_prefix = torch.stack([to_patch, between], dim=-1)[:, None].expand(-1, grid.num_prefix, -1)
    of_grid = torch.stack([torch.zeros_like(to_prefix), to_prefix], dim=-1)[:, None].expand(-1, grid.num_patches, -1)
    return torch.cat([of_prefix, of_grid], dim=1)[None]


def _prefix_of_keys(k: Tensor, grid: TokenGrid) -> Tensor:
    """Whether a key is a grid token or a prefix token, (1, 1, Nk, 2)."""
    kinds = torch.eye(2, dtype=k.dtype, device=k.device)
    marks = torch.cat([kinds[1:].expand(grid.num_prefix, 2), kinds[:1].expand(grid.num_patches, 2)])
    return marks[None, None]
