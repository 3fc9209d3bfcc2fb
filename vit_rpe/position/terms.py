"""PositionTerms: everything a position encoding has to say to one attention call.

An encoding describes, attention applies. The bundle holds tensors only (and the two grids they were made for).

Legend: B batch, H heads, D head width, g channels of a block, Nq/Nk query/key tokens with prefix, Sq/Sk the length of
one grid axis, R number of relations, s the softmax scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vit_rpe.position.geometry import Device, TokenGrid, are_constants, expand_axis
from vit_rpe.position.geometry_cache import is_plain
from vit_rpe.position.masks import GeometricMask, intersect, intersect_geometric, sees_itself
from vit_rpe.position.offset_tables import Allocate, offset_range, spread, spread_with_prefix
from vit_rpe.position.prefix import pad_prefix, pad_prefix_with


class RelativeVectors(NamedTuple):
    """One vector per relation, and which relation each pair of tokens has.

    Attributes:
        table: (H or 1, R, D).
        index: int64. Without ``axis`` (Nq, Nk), or (B, Nq, Nk) after :meth:`PositionTerms.take`; -1 is the zero
            vector. With ``axis=a``: (Sq_a, Sk_a), the relation of a pair of grid tokens depends on that coordinate
            only, and pairs with a prefix token have the zero vector; -1 is for ``"eager"``, the other kernels want one
            for every pair.
        axis: see above.
    """

    table: Tensor
    index: Tensor  # type: ignore[assignment]
    axis: int | None = None


class AxisBias(NamedTuple):
    """A bias that depends on one coordinate only: bias (H or 1, Sq_a, Sk_a) along ``axis``; prefix pairs have 0."""

    bias: Tensor
    axis: int


class Features(NamedTuple):
    """Channels of queries and keys whose product is added to the logits: left (B or 1, H or 1, Nq, F), right likewise
    for the keys."""

    left: Tensor
    right: Tensor


class PositionTerms(NamedTuple):
    """What position adds to attention; every part optional, all empty means no position.

    Attributes:
        rotate_q, rotate_k: (cos, sin), each (N, D/2), (H, N, D/2), or with a leading batch axis.
        bias: added to the logits after scaling, (H or 1, Nq, Nk) or (B or 1, H or 1, Nq, Nk).
        axis_bias: separable biases, added likewise.
        visible: bool, (Nq, Nk), (H or 1, Nq, Nk) or (B or 1, H or 1, Nq, Nk); True = may see.
        on_query: logits += s <q_i, table[index_ij]>.
        on_key: logits += s <k_j, table[index_ij]>.
        on_value: output_i += sum_j A_ij table[index_ij].
        scale: multiplies the softmax scale s.
        grids: the query and key grid; present wherever a part is per axis, per offset or a mask by geometry.
        offset_bias: tables over offsets, (H or 1, R_1, ..., R_n) (:mod:`vit_rpe.position.offset_tables`): the bias of a
            pair of grid tokens is the entry of its offset; prefix pairs have 0.
        prefix_bias: (H or 1, 3), added to the pairs prefix->patch, patch->prefix and prefix->prefix.
        features: logits += <left_i, right_j>, not scaled by s: a bias of rank F.
        blocks_q, blocks_k: a matrix for every g channels, (H or 1, N, D/g, g, g) or with a leading batch axis:
            rotations that do not commute.
        polar_q, polar_k: (cos, sin), each (H or 1, N, D) or with a leading batch axis: the softplus of a channel is a
            length at this angle, so that attention doubles the width of q and k; s stays.
        offset_visible: bool table over offsets, (H or 1, R_1, ..., R_n), beside ``visible``: a query sees keys at
            offsets that are True, and every prefix token.
        geometric_mask: hides keys by where they lie on ``grids``, beside ``visible``: no tensor of all pairs is made
            where a kernel cuts the keys instead (:func:`dense_visible` makes it).

    Of rotation, blocks and polar at most one is there, for queries and keys alike.
    """

    rotate_q: tuple[Tensor, Tensor] | None = None
    rotate_k: tuple[Tensor, Tensor] | None = None
    bias: Tensor | None = None
    axis_bias: tuple[AxisBias, ...] = ()
    visible: Tensor | None = None
    on_query: tuple[RelativeVectors, ...] = ()
    on_key: tuple[RelativeVectors, ...] = ()
    on_value: tuple[RelativeVectors, ...] = ()
    scale: float = 1.0
    grids: tuple[TokenGrid, TokenGrid] | None = None
    offset_bias: tuple[Tensor, ...] = ()
    prefix_bias: Tensor | None = None
    features: tuple[Features, ...] = ()
    blocks_q: Tensor | None = None
    blocks_k: Tensor | None = None
    polar_q: tuple[Tensor, Tensor] | None = None
    polar_k: tuple[Tensor, Tensor] | None = None
    offset_visible: Tensor | None = None
    geometric_mask: GeometricMask | None = None

    @property
    def moves(self) -> bool:
        """Whether position does something to queries and keys before their product."""
        parts = (self.rotate_q, self.rotate_k, self.blocks_q, self.blocks_k, self.polar_q, self.polar_k)
        return any(part is not None for part in parts)

    def of_content(self) -> PositionTerms:
        """What is left when all tokens stand at one place: the softmax scale, lengths where they are polar, and what
        hides keys whatever the encoding."""
        at_zero = (
            None if part is None else (torch.ones_like(part[0][..., :1, :]), torch.zeros_like(part[1][..., :1, :]))
            for part in (self.polar_q, self.polar_k)
        )
        polar_q, polar_k = at_zero
        hidden = None if self.geometric_mask is None else self.grids
        return PositionTerms(
            scale=self.scale, polar_q=polar_q, polar_k=polar_k, geometric_mask=self.geometric_mask, grids=hidden
        )

    def take(self, keep: Tensor) -> PositionTerms:
        """The terms of a subset of tokens per sample (patch dropout); each pair keeps its original offset.

        Args:
            keep: int64 (B, M), positions in the full sequence (prefix included); query and key are the same tokens.

        Returns:
            Terms whose tensors carry a leading batch axis and have no per-axis parts.
        """
        return PositionTerms(
            rotate_q=_take_rotation(self.rotate_q, keep),
            rotate_k=_take_rotation(self.rotate_k, keep),
            bias=_take_pairs(dense_bias(self), keep),
            visible=_take_pairs(dense_visible(self, keep.device), keep),
            on_query=tuple(_take_vectors(self, part, keep) for part in self.on_query),
            on_key=tuple(_take_vectors(self, part, keep) for part in self.on_key),
            on_value=tuple(_take_vectors(self, part, keep) for part in self.on_value),
            scale=self.scale,
            features=tuple(Features(*(_gather(side, 2, keep) for side in pair)) for pair in self.features),
            blocks_q=_take_blocks(self.blocks_q, keep),
            blocks_k=_take_blocks(self.blocks_k, keep),
            polar_q=_take_rotation(self.polar_q, keep),
            polar_k=_take_rotation(self.polar_k, keep),
        )


NOTHING = PositionTerms()
"""No position."""


def dense_bias(terms: PositionTerms, allocate: Allocate | None = None) -> Tensor | None:
    """Everything of the terms that is a bias, as one tensor, (H or 1, Nq, Nk) or with a batch axis; None if nothing.

    Args:
        allocate: memory for a bias that is spread in one go; the result may lie in it.
    """
    if len(terms.offset_bias) == 1 and not terms.axis_bias and terms.bias is None:
        total = spread_with_prefix(terms.offset_bias[0], terms.prefix_bias, *grids_of(terms), allocate)
        if total is not None:
            return total
    total = grid_bias(terms)
    if total is None and terms.prefix_bias is not None:
        q, k = grids_of(terms)
        total = terms.prefix_bias.new_zeros(1, q.num_patches, k.num_patches)
    if total is None:
        return terms.bias
    total = add_prefix(total, terms)
    return total if terms.bias is None else terms.bias + total


def grid_bias(terms: PositionTerms) -> Tensor | None:
    """The biases per axis and per offset over pairs of grid tokens, (H or 1, Pq, Pk); None if there are none."""
    parts = [spread(table, *grids_of(terms)) for table in terms.offset_bias]
    if terms.axis_bias:
        q, k = grids_of(terms)
        views = [expand_axis(part.bias, part.axis, q, k) for part in terms.axis_bias]
        total = sum(views[1:], start=views[0])
        parts.append(total.reshape(total.shape[0], q.num_patches, k.num_patches))
    return sum(parts[1:], start=parts[0]) if parts else None


def add_prefix(values: Tensor, terms: PositionTerms) -> Tensor:
    """Logits of grid pairs (..., H or 1, Pq, Pk) -> of all pairs (..., H or 1, Nq, Nk), with the prefix scalars."""
    q, k = grids_of(terms)
    if terms.prefix_bias is None:
        return pad_prefix(values, q, k)
    to_patch, to_prefix, between = terms.prefix_bias.to(values.dtype).unbind(1)
    return pad_prefix_with(values, q, k, to_patch=to_patch, to_prefix=to_prefix, between=between)


def fill_prefix(values: Tensor, terms: PositionTerms) -> Tensor:
    """Logits of all pairs (..., Nq, Nk) whose prefix rows and columns are not set yet, with the prefix scalars in."""
    q, k = (grid.num_prefix for grid in grids_of(terms))
    if q + k > 0:
        given = terms.prefix_bias
        to_patch, to_prefix, between = (
            (0.0,) * 3 if given is None else given.to(values.dtype)[..., None, None].unbind(1)
        )
        values[..., :q, k:] = to_patch
        values[..., q:, :k] = to_prefix
        values[..., :q, :k] = between
    return values


def dense_index(terms: PositionTerms, part: RelativeVectors) -> Tensor:
    """The relation of every pair, int64 (Nq, Nk) or (B, Nq, Nk); -1 is the zero vector."""
    if part.axis is None:
        return part.index
    q, k = grids_of(terms)
    full = expand_axis(part.index, part.axis, q, k).reshape(q.num_patches, k.num_patches)
    return pad_prefix(full, q, k, value=-1)


def dense_visible(terms: PositionTerms, device: Device = None) -> Tensor | None:
    """All that hides keys as one mask, bool (Nq, Nk) or with heads and batch in front; None if nothing."""
    seen, by_offset = terms.visible, None
    if terms.geometric_mask is not None:
        seen = intersect(seen, terms.geometric_mask.dense(*grids_of(terms), device))
    if terms.offset_visible is not None:
        q, k = grids_of(terms)
        by_offset = pad_prefix(spread(terms.offset_visible, q, k), q, k, value=True)
    return intersect(seen, by_offset)


def hide_in_table(terms: PositionTerms) -> PositionTerms:
    """The same terms with -inf in the table over offsets in place of ``offset_visible``: one table is spread, not two.

    Only where every query sees a key for sure, because kernels differ on a row of -inf, and where a glance at the table
    costs nothing; the terms as they are otherwise.
    """
    table = terms.offset_visible
    if table is None or terms.visible is not None or table.device.type != "cpu" or not is_plain():
        return terms
    q, k = grids_of(terms)
    if not are_constants(*q.size, *k.size) or not sees_itself(q, k):
        return terms
    itself = table
    for axis in range(q.ndim):
        itself = itself.select(1, -offset_range(q, k, axis)[0])
    if k.num_prefix == 0 and not bool(itself.all()):
        return terms
    bias = sum(terms.offset_bias[1:], start=terms.offset_bias[0]) if terms.offset_bias else torch.zeros(1)
    bias = bias.where(table, float("-inf"))
    return terms._replace(offset_bias=(bias,), offset_visible=None)


def combine(a: PositionTerms, b: PositionTerms) -> PositionTerms:
    """Use two encodings at once: biases add, visibilities intersect, relative vectors are joined.

    Raises:
        ValueError: both move queries and keys, both change the softmax scale, or they were made for different grids.
    """
    if a is NOTHING or b is NOTHING:
        return b if a is NOTHING else a
    if a.moves and b.moves:
        raise ValueError("two rotary encodings cannot be combined: each would rotate the other's result")
    if a.scale != 1.0 and b.scale != 1.0:
        raise ValueError(f"two encodings set the softmax scale (factors {a.scale} and {b.scale})")
    if a.grids is not None and b.grids is not None and a.grids != b.grids:
        raise ValueError(f"terms of different grids cannot be combined: {a.grids} and {b.grids}")
    return PositionTerms(
        rotate_q=a.rotate_q if a.moves else b.rotate_q,
        rotate_k=a.rotate_k if a.moves else b.rotate_k,
        blocks_q=a.blocks_q if a.moves else b.blocks_q,
        blocks_k=a.blocks_k if a.moves else b.blocks_k,
        polar_q=a.polar_q if a.moves else b.polar_q,
        polar_k=a.polar_k if a.moves else b.polar_k,
        bias=_sum(a.bias, b.bias),
        axis_bias=a.axis_bias + b.axis_bias,
        offset_bias=_one_table(a.offset_bias + b.offset_bias),
        prefix_bias=_sum(a.prefix_bias, b.prefix_bias),
        visible=intersect(a.visible, b.visible),
        offset_visible=intersect(a.offset_visible, b.offset_visible),
        geometric_mask=intersect_geometric(a.geometric_mask, b.geometric_mask),
        on_query=a.on_query + b.on_query,
        on_key=a.on_key + b.on_key,
        on_value=a.on_value + b.on_value,
        scale=a.scale * b.scale,
        features=a.features + b.features,
        grids=a.grids if a.grids is not None else b.grids,
    )


def _one_table(tables: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Tables over the same offsets, summed: one is spread over pairs instead of each."""
    return (sum(tables[1:], start=tables[0]),) if len(tables) > 1 else tables


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def grids_of(terms: PositionTerms) -> tuple[TokenGrid, TokenGrid]:
    """The query and key grid of terms with parts per axis, per offset or masks by geometry."""
    if terms.grids is None:
        raise ValueError("these terms have per-axis parts and no grids: set PositionTerms.grids")
    return terms.grids


def _take_rotation(rotation: tuple[Tensor, Tensor] | None, keep: Tensor) -> tuple[Tensor, Tensor] | None:
    """(N, F), (H, N, F) or (B or 1, H or 1, N, F) -> (B, H or 1, M, F)."""
    if rotation is None:
        return None
    cos, sin = (_gather(values[(None,) * (4 - values.ndim)], 2, keep) for values in rotation)
    return cos, sin


def of_blocks(blocks: Tensor | None, change: Callable[[Tensor], Tensor]) -> Tensor | None:
    """A change of channels of tokens (..., N, X), made to matrices (..., N, D/g, g, g)."""
    return None if blocks is None else change(blocks.flatten(-3)).unflatten(-1, blocks.shape[-3:])


def _take_blocks(blocks: Tensor | None, keep: Tensor) -> Tensor | None:
    """(H or 1, N, D/g, g, g) or with a batch axis -> (B, H or 1, M, D/g, g, g)."""
    return of_blocks(blocks, lambda values: _gather(values[(None,) * (4 - values.ndim)], 2, keep))


def _take_pairs(values: Tensor | None, keep: Tensor) -> Tensor | None:
    """(Nq, Nk), (H, Nq, Nk) or (B, H, Nq, Nk) -> (B, H or 1, M, M); an axis of 1 is for all queries or keys."""
    if values is None:
        return None
    values = values[(None,) * (4 - values.ndim)]
    for axis in (2, 3):
        if values.shape[axis] != 1:
            values = _gather(values, axis, keep)
    return values


def _gather(values: Tensor, axis: int, keep: Tensor) -> Tensor:
    """The entries of each sample's tokens along one of four axes: (B or 1, ...) -> (B, ...)."""
    shape = [keep.shape[0], *values.shape[1:]]
    values = values.expand(shape)
    shape[axis] = keep.shape[1]
    along = [keep.shape[0], *(keep.shape[1] if other == axis else 1 for other in (1, 2, 3))]
    return values.gather(axis, keep.view(along).expand(shape))


def _take_vectors(terms: PositionTerms, part: RelativeVectors, keep: Tensor) -> RelativeVectors:
    index = dense_index(terms, part)
    taken = _take_pairs(index[:, None] if index.ndim == 3 else index, keep)
    assert taken is not None
    return RelativeVectors(part.table, taken[:, 0])
