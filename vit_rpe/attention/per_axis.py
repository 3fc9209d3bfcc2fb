"""Terms that depend on one coordinate at a time, as channels: their share of the logits is a product left right^T.

A part with an axis adds f(i, j_a): query i has a value for every coordinate of the keys along that axis, the key knows
which coordinate it has. Or g(j, i_a), with the sides exchanged. So

    sum_a f_a[i, j_a] + g_a[j, i_a]  =  < [f_a[i], onehot(i_a)], [onehot(j_a), g_a[j]] >

with N sqrt(N) values instead of N N. Prefix tokens have zero channels, but for two that carry the prefix scalars.

Legend: B batch, H heads, D head width, Sq/Sk tokens of one axis, Pq/Pk grid tokens, Nq/Nk with prefix, R relations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from vit_rpe.attention.reference import key_logits, query_logits
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.offset_tables import Allocate
from vit_rpe.position.prefix import pad_tokens
from vit_rpe.position.terms import PositionTerms, RelativeVectors, add_prefix, dense_bias, fill_prefix, grids_of
from vit_rpe.precision import full_precision

Channels = tuple[Tensor, Tensor]

LONG_AXIS = 32
"""Keys along the last axis from which adding the features over pairs beats the product of channels."""


def axis_logits(
    q: Tensor, k: Tensor, terms: PositionTerms, scale: float, allocate: Allocate | None = None
) -> Tensor | None:
    """As :func:`position_logits`, (B or 1, H or 1, Nq, Nk): per-axis parts by their channels, the rest as defined.

    Args:
        allocate: memory for the result, in inference; it may lie elsewhere.
    """
    tables = terms.axis_bias or terms.on_query or terms.on_key or terms.offset_bias
    if not (tables or terms.features) and terms.prefix_bias is None:
        return terms.bias if terms.bias is None or terms.bias.ndim == 4 else terms.bias[None]
    total: Tensor | None = None
    if has_axis_logits(terms):
        length = grids_of(terms)[1].size[-1]
        if type(length) is int and length >= LONG_AXIS:
            total = broadcast_logits(q, k, terms, scale, allocate)
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
    for left, right in terms.features:
        with full_precision(left.device):  # they may be large and cancel each other
            added = left @ right.mT
        total = added if total is None else total + added
    bias = dense_bias(terms)
    if bias is None:
        return total
    bias = bias if bias.ndim == 4 else bias[None]
    return bias if total is None else total + bias


def has_axis_logits(terms: PositionTerms) -> bool:
    """Whether some logits depend on one coordinate at a time."""
    return bool(terms.axis_bias) or any(part.axis is not None for part in (*terms.on_query, *terms.on_key))


class Features(NamedTuple):
    """What tokens of one side have for coordinates of the other, axes side by side: (B or 1, H or 1, P, sum of S)."""

    axes: tuple[int, ...]
    values: Tensor


def channels(q: Tensor, k: Tensor, terms: PositionTerms, scale: float) -> Channels:
    """Left (B or 1, H or 1, Nq, F) and right (B or 1, H or 1, Nk, F) for all per-axis logits and prefix scalars."""
    q_grid, k_grid = grids_of(terms)
    left, right = [], []
    marks_of: dict[tuple[int, ...], Tensor] = {}  # of the key grid, by axes
    for features in query_features(q, terms, scale):
        marks_of[features.axes] = one_hots(k_grid, features.axes, k.dtype, k.device)
        left.append(features.values.to(q.dtype))
        right.append(marks_of[features.axes])
    for features in key_features(k, terms, scale):
        if not features.axes:
            left.append(q.new_ones(1, 1, q_grid.num_patches, 1))
        elif q_grid is k_grid and features.axes in marks_of:
            left.append(marks_of[features.axes])
        else:
            left.append(one_hots(q_grid, features.axes, q.dtype, q.device))
        right.append(features.values.to(k.dtype))
    wide_left, wide_right = pad_tokens(joined(left), q_grid), pad_tokens(joined(right), k_grid)
    if terms.prefix_bias is not None:
        wide_left = joined([wide_left, _prefix_of_queries(terms.prefix_bias, q, q_grid)])
        wide_right = joined([wide_right, _prefix_of_keys(k, k_grid)])
    return wide_left, wide_right


def broadcast_logits(
    q: Tensor, k: Tensor, terms: PositionTerms, scale: float, allocate: Allocate | None = None
) -> Tensor:
    """Logits of all pairs of tokens, as sums of what each axis and the prefix tokens add: (B or 1, H or 1, Nq, Nk).

    Args:
        allocate: memory for the result, in inference.
    """
    q_grid, k_grid = grids_of(terms)
    views = []
    for features in query_features(q, terms, scale):
        lengths = [k_grid.size[axis] for axis in features.axes]
        for axis, part in zip(features.axes, features.values.split(lengths, dim=-1), strict=True):
            along = [k_grid.size[axis] if other == axis else 1 for other in range(k_grid.ndim)]
            views.append(part.reshape(*part.shape[:2], *q_grid.size, *along))
    for features in key_features(k, terms, scale):
        lengths = [q_grid.size[axis] for axis in features.axes] or [1]
        axes = features.axes or (-1,)
        for axis, part in zip(axes, features.values.split(lengths, dim=-1), strict=True):
            along = [q_grid.size[axis] if other == axis else 1 for other in range(q_grid.ndim)]
            views.append(part.mT.reshape(*part.shape[:2], *along, *k_grid.size))
    if allocate is None or len(views) == 1:
        total = sum(views[1:], start=views[0]).to(q.dtype)
        total = total.expand(*total.shape[:2], *q_grid.size, *k_grid.size)
        total = total.reshape(*total.shape[:2], q_grid.num_patches, k_grid.num_patches)
        return add_prefix(total, terms)
    lead = torch.broadcast_shapes(*(view.shape[:2] for view in views))
    total = allocate((*lead, q_grid.num_tokens, k_grid.num_tokens), views[0])
    pairs = total[:, :, q_grid.num_prefix :, k_grid.num_prefix :]
    pairs = pairs.unflatten(3, k_grid.size).unflatten(2, q_grid.size)
    torch.add(views[0], views[1], out=pairs)
    for view in views[2:]:
        pairs += view
    return fill_prefix(total, terms)


def query_features(q: Tensor, terms: PositionTerms, scale: float) -> list[Features]:
    """What query i adds to keys of each coordinate."""
    grid = grids_of(terms)[0]
    found = []
    parts = [part for part in terms.on_query if part.axis is not None]
    if parts:
        found.append(Features(_axes(parts), _content(q, parts, grid, scale)))
    if terms.axis_bias:
        axes = tuple(bias.axis for bias in terms.axis_bias)
        rows = joined([axis_rows(grid, bias.axis, bias.bias)[None] for bias in terms.axis_bias])
        if found and found[0].axes == axes:
            found = [Features(axes, found[0].values + rows)]
        else:
            found.append(Features(axes, rows))
    return found


def absorb_constants(q: Tensor, terms: PositionTerms) -> tuple[Tensor, PositionTerms]:
    """What every key adds for all queries alike, <k_j, u>, as a shift of the queries: <q_i + u, k_j>.

    Only where all pairs have it and position moves nothing; the other terms still meet the queries as they were.

    Returns:
        The shifted queries, and the terms without these parts.
    """
    parts = tuple(part for part in terms.on_key if part.axis is not None and is_constant(part))
    if not parts or terms.moves or any(grid.num_prefix for grid in grids_of(terms)):
        return q, terms
    rest = tuple(part for part in terms.on_key if part.axis is None or not is_constant(part))
    for part in parts:
        q = q + part.table.to(q.dtype)  # (H or 1, 1, D)
    return q, terms._replace(on_key=rest)


def key_features(k: Tensor, terms: PositionTerms, scale: float) -> list[Features]:
    """What key j adds to queries of each coordinate; no axes where it is one value for all queries."""
    grid = grids_of(terms)[1]
    found = []
    parts = [part for part in terms.on_key if part.axis is not None and not is_constant(part)]
    if parts:
        found.append(Features(_axes(parts), _content(k, parts, grid, scale, of_keys=True)))
    for part in terms.on_key:
        if part.axis is not None and is_constant(part):
            found.append(Features((), k[:, :, grid.num_prefix :] @ part.table.to(k.dtype).mT * scale))
    return found


def _content(
    x: Tensor, parts: Sequence[RelativeVectors], grid: TokenGrid, scale: float, *, of_keys: bool = False
) -> Tensor:
    """scale <x_i, table[index of i_a and c]> for every grid token i and coordinate c, the parts side by side.

    One product with the rows of all tables, and one gather.

    Args:
        x: (B, H, N, D) on ``grid``, prefix first.
        of_keys: x are the keys, and c is a coordinate of the queries.

    Returns:
        (B, H, P, sum of C).
    """
    tables = _side_by_side(parts).to(x.dtype) * scale
    product = (x[:, :, grid.num_prefix :] if grid.num_prefix else x) @ tables.mT  # (B, H, P, sum of R)
    rows = _rows_of_parts(parts, grid, of_keys=of_keys)
    return product.gather(-1, rows.expand(*product.shape[:-1], rows.shape[-1]))


def axis_value_output(weights: Tensor, parts: Sequence[RelativeVectors], grid: TokenGrid) -> Tensor:
    """sum over parts and coordinates c of W[i, c] table[index[i_a, c]], from weights summed per coordinate.

    Args:
        weights: (B, H, Pq, sum of Sk), the attention of grid query i to all keys of a coordinate, the axes of the
            parts side by side.
        grid: of the queries.

    Returns:
        (B, H, Pq, D).
    """
    tables = _side_by_side(parts)
    rows = _rows_of_parts(parts, grid).expand(weights.shape)
    buckets = weights.new_zeros(*weights.shape[:-1], tables.shape[1]).scatter_add_(-1, rows, weights)
    return buckets @ tables.to(weights.dtype)


def _axes(parts: Sequence[RelativeVectors]) -> tuple[int, ...]:
    return tuple(part.axis for part in parts if part.axis is not None)


def _side_by_side(parts: Sequence[RelativeVectors]) -> Tensor:
    """The tables of several parts as one, (H or 1, sum of R, D)."""
    if len(parts) == 1:
        return parts[0].table
    heads = max(part.table.shape[0] for part in parts)
    return torch.cat([part.table.expand(heads, -1, -1) for part in parts], dim=1)


def _rows_of_parts(parts: Sequence[RelativeVectors], grid: TokenGrid, *, of_keys: bool = False) -> Tensor:
    """For every grid token and coordinate of the other side the row of :func:`_side_by_side`, int64 (P, sum of C).

    Args:
        of_keys: the tokens of ``grid`` are the keys.
    """
    lengths = tuple(part.table.shape[1] for part in parts)
    return _side_by_side_rows(grid, _axes(parts), lengths, tuple(part.index for part in parts), of_keys)


@once_per_forward
def _side_by_side_rows(
    grid: TokenGrid, axes: tuple[int, ...], lengths: tuple[int, ...], index: tuple[Tensor, ...], of_keys: bool
) -> Tensor:
    found, start = [], 0
    for axis, length, own in zip(axes, lengths, index, strict=True):
        rows = own.mT if of_keys else own
        found.append(axis_rows(grid, axis, rows + start if start else rows))
        start += length
    return _along_last(found)


def axis_rows(grid: TokenGrid, axis: int, values: Tensor) -> Tensor:
    """Give every grid token the row of its coordinate: (..., S_a, X) -> (..., P, X)."""
    if all(type(size) is int for size in grid.size):
        lead, (own, width) = values.shape[:-2], values.shape[-2:]
        before, after = prod(grid.size[:axis]), prod(grid.size[axis + 1 :])
        repeated = values[..., None, :, None, :].expand(*lead, before, own, after, width)
        return repeated.reshape(*lead, grid.num_patches, width)
    # Not a reshaped repetition: merging its strides would compare sizes, which are symbols here.
    line = torch.arange(grid.num_patches, device=values.device) // prod(grid.size[axis + 1 :])
    coordinate = line - line // grid.size[axis] * grid.size[axis]  # ONNX has no remainder by a symbol
    return values.index_select(-2, coordinate)


@once_per_forward
def one_hots(grid: TokenGrid, axes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Which coordinate every grid token has along each axis, (1, 1, P, sum of S)."""
    marks = [axis_rows(grid, axis, torch.eye(grid.size[axis], dtype=dtype, device=device)) for axis in axes]
    return _along_last(marks)[None, None]


def _along_last(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


def is_constant(part: RelativeVectors) -> bool:
    """One relation for all pairs of grid tokens."""
    return type(part.table.shape[1]) is int and part.table.shape[1] == 1


def joined(parts: list[Tensor]) -> Tensor:
    """Channels side by side; batch and heads are repeated only where some part has them."""
    if len(parts) == 1:
        return parts[0]
    batch, heads = (next((part.shape[axis] for part in parts if part.shape[axis] != 1), 1) for axis in range(2))
    return torch.cat([part.expand(batch, heads, -1, -1) for part in parts], dim=-1)


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
