"""The terms as a function of one logit and its place, which looks values up where the terms hold them.

Every tensor is looked up once a pair, because torch's backward allows no more.

Legend: B batch, H heads, Nq/Nk query/key tokens with prefix, S tokens of one axis, R offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.attention.per_axis import Features, axis_rows, key_features, query_features
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.offset_tables import offset_range
from vit_rpe.position.prefix import pad_tokens
from vit_rpe.position.terms import PositionTerms

OfPair = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A value of a pair, from the numbers of its sample, head, query and key."""
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def score_function(
    q: Tensor, k: Tensor, terms: PositionTerms, *, scale: float, logit_clip: float | None
) -> ScoreMod | None:
    """What becomes of the logit of a pair, s q k^T: the terms are added, then it is capped; None if nothing.

    Args:
        q, k: before they are placed, as relative vectors meet them.
    """
    parts = _parts(q, k, terms, scale)
    if not parts and logit_clip is None:
        return None

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for part in parts:
            score = score + part(b, h, i, j)
        return score if logit_clip is None else logit_clip * torch.tanh(score / logit_clip)

    return score_mod


def looked_up(values: Tensor, row: Tensor | None = None, column: Tensor | None = None) -> OfPair:
    """The entry of a pair in values (B or 1, H or 1, X or 1, Y or 1), or fewer axes.

    Args:
        row: for every query its place along X, int32 (Nq,); None where X are the queries.
        column: the same for keys along Y.
    """
    values = values[(None,) * (4 - values.ndim)]
    many_b, many_h, many_i, many_j = (int(size != 1) for size in values.shape)

    def entry(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        i, j = i if row is None else row[i], j if column is None else column[j]
        return values[b * many_b, h * many_h, i * many_i, j * many_j]

    return entry


def _parts(q: Tensor, k: Tensor, terms: PositionTerms, scale: float) -> list[OfPair]:
    """Everything the terms add to the logits."""
    parts = [] if terms.bias is None else [looked_up(terms.bias)]
    if terms.grids is None:
        return parts
    q_grid, k_grid = terms.grids
    parts += [_by_offset(table, q_grid, k_grid) for table in terms.offset_bias]
    if terms.prefix_bias is not None:
        to_patch, to_prefix, between = terms.prefix_bias.unbind(1)
        kinds = torch.stack([torch.zeros_like(between), to_prefix, to_patch, between], dim=-1).unflatten(-1, (2, 2))
        parts.append(looked_up(kinds, _is_prefix(q_grid, q.device), _is_prefix(k_grid, q.device)))
    for bias, axis in terms.axis_bias:
        rows, columns = _coordinates(q_grid, axis, q.device), _coordinates(k_grid, axis, q.device)
        parts.append(looked_up(F.pad(bias, (0, 1, 0, 1)), rows, columns))
    content = terms._replace(axis_bias=())
    for features in query_features(q, content, scale):
        for axis_of_key, values in _by_axis(features, q_grid, k_grid):
            parts.append(looked_up(values, column=_coordinates(k_grid, axis_of_key, q.device)))
    for features in key_features(k, content, scale):
        for axis_of_query, values in _by_axis(features, k_grid, q_grid):
            parts.append(looked_up(values.mT, row=_coordinates(q_grid, axis_of_query, q.device)))
    return parts


def _by_offset(table: Tensor, q: TokenGrid, k: TokenGrid) -> OfPair:
    """The entry of a pair in a table over offsets, (H or 1, R_1, ..., R_n); pairs with a prefix token have 0."""
    flat = F.pad(table.flatten(1), (0, 1))
    zero, many = flat.shape[1] - 1, int(table.shape[0] != 1)
    row, column = _flat_offsets(q, k, table.device)
    first_q, first_k = q.num_prefix, k.num_prefix

    def entry(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        offset = row[i] - column[j]
        if first_q > 0 or first_k > 0:
            offset = torch.where((i < first_q) | (j < first_k), zero, offset)
        return flat[h * many, offset]

    return entry


def _by_axis(features: Features, own: TokenGrid, other: TokenGrid) -> list[tuple[int | None, Tensor]]:
    """What tokens of one side have for every coordinate of the other along one axis, and 0 for its prefix tokens.

    Returns:
        Axes (None where one value is for the whole grid) with (B or 1, H or 1, N, S + 1).
    """
    axes: tuple[int | None, ...] = features.axes or (None,)
    values = features.values.split([1 if axis is None else other.size[axis] for axis in axes], dim=-1)
    return [(axis, F.pad(pad_tokens(part, own), (0, 1))) for axis, part in zip(axes, values, strict=True)]


@once_per_forward
def _flat_offsets(q: TokenGrid, k: TokenGrid, device: Device) -> tuple[Tensor, Tensor]:
    """Numbers of queries and keys whose difference is the place of their offset in the flattened table, int32."""
    ranges = [offset_range(q, k, axis) for axis in range(q.ndim)]
    low, lengths = [first for first, _ in ranges], [length for _, length in ranges]
    row, column = numbered(q.positions(device), low, lengths), numbered(k.positions(device), [0] * k.ndim, lengths)
    return F.pad(row, (q.num_prefix, 0)).to(torch.int32), F.pad(column, (k.num_prefix, 0)).to(torch.int32)


def numbered(places: Tensor, low: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """The number of each place (P, n) in a box that begins at ``low``, row by row: (P,)."""
    number = torch.zeros_like(places[:, 0])
    for axis, (first, length) in enumerate(zip(low, lengths, strict=True)):
        number = number * length + places[:, axis] - first
    return number


@once_per_forward
def _coordinates(grid: TokenGrid, axis: int | None, device: Device) -> Tensor:
    """The place of every token along one axis, or 0 without one; prefix tokens come behind the last. int32 (N,)."""
    if axis is None:
        return F.pad(torch.zeros(grid.num_patches, dtype=torch.int32, device=device), (grid.num_prefix, 0), value=1)
    along = torch.arange(grid.size[axis], dtype=torch.int32, device=device)[:, None]
    return F.pad(axis_rows(grid, axis, along)[:, 0], (grid.num_prefix, 0), value=grid.size[axis])


@once_per_forward
def _is_prefix(grid: TokenGrid, device: Device) -> Tensor:
    """1 for prefix tokens and 0 for those of the grid, int32 (N,)."""
    return (torch.arange(grid.num_tokens, device=device) < grid.num_prefix).to(torch.int32)
