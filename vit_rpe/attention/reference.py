"""Attention with position terms: the definition, which every kernel is tested against.

    logits = s (q k^T + on_query + on_key) + features + bias,   weights = softmax(logits over visible keys)
    output = weights v + on_value,                    s = scale * terms.scale

with q and k rotated first, multiplied by blocks or made polar where the terms say so (:mod:`.placement`; relative
vectors meet q and k as they were). A query that sees no
key gets zero weights and a zero output in every kernel.

Legend: B batch, H heads, D head width, Dv value width, Nq/Nk query/key tokens with prefix, R number of relations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_rpe.attention.checks import check_call
from vit_rpe.attention.placement import placed_plainly
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.masks import as_batch_head, intersect, unmask_empty_rows
from vit_rpe.position.terms import PositionTerms, RelativeVectors, dense_bias, dense_index, dense_visible
from vit_rpe.precision import full_precision


class Options(NamedTuple):
    """What a kernel needs beside q, k, v and the terms. ``scale`` already holds ``terms.scale``."""

    scale: float
    visible: Tensor | None
    dropout_p: float
    logit_clip: float | None


class MixedByLayer:
    """Heads mixed by calling ``layer``, so that adapters, hooks and parametrisations on it have their effect.

    Attributes:
        layer: takes and gives (B, H, Nq, Nk), or (B, Nq, Nk, H) with ``heads_last``.
    """

    def __init__(self, layer: nn.Module, *, heads_last: bool = False) -> None:
        self.layer = layer
        self.heads_last = heads_last

    def __call__(self, x: Tensor) -> Tensor:
        """x and the result are (B, H, Nq, Nk); the layer computes in the dtype of its weights."""
        floating = (each.dtype for each in self.layer.parameters() if each.is_floating_point())
        given = x.to(next(floating, x.dtype))
        mixed: Tensor = self.layer(given.movedim(1, -1)).movedim(-1, 1) if self.heads_last else self.layer(given)
        return mixed.to(x.dtype)


class HeadMix(NamedTuple):
    """A linear layer over heads, of the logits or of the weights of every pair of tokens (talking heads).

    Talking-Heads Attention, arXiv 2003.02436, eq. 5 and 7.

    Attributes:
        weight: (H, H), new head by old.
        bias: (H,), or None.
    """

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """x and the result are (B, H, Nq, Nk)."""
        mixed = torch.einsum("gh,bhqk->bgqk", self.weight.to(x.dtype), x)
        return mixed if self.bias is None else mixed + self.bias.to(x.dtype)[:, None, None]


Mix = Callable[[Tensor], Tensor]
"""What mixes heads, an affine map of (B, H, Nq, Nk): :class:`HeadMix` or :class:`MixedByLayer`."""


def attention_weights(
    q: Tensor,
    k: Tensor,
    terms: PositionTerms,
    *,
    scale: float,
    visible: Tensor | None = None,
    logit_clip: float | None = None,
    mix: Mix | None = None,
) -> Tensor:
    """The attention weights themselves: the definition every kernel is tested against.

    Args as in :func:`attend`; ``mix`` mixes the logits of the heads before masking. Computed in float32 or better,
    whatever the inputs and autocast.

    Returns:
        (B, H, Nq, Nk), rows sum to 1, or to 0 where no key is visible.
    """
    check_call(q, k, None, terms)
    options = Options(scale * terms.scale, all_visible(q, k, terms, visible), 0.0, logit_clip)
    return _weights(q, k, terms, options, mix)


def query_logits(q: Tensor, part: RelativeVectors, index: Tensor) -> Tensor:
    """Logits that queries make with the relative vector of each pair: <q_i, table[index_ij]>, (B, H, Nq, Nk).

    q is (B, H, Nq, D), index (Nq, Nk) or (B, Nq, Nk).

    One product with every row of the table and a gather; never an (Nq, Nk, D) tensor.
    """
    return _picked(q, part, _zero_last(index, part.table.shape[1], transposed=False))


def key_logits(k: Tensor, part: RelativeVectors, index: Tensor) -> Tensor:
    """Logits that keys make with the relative vector of each pair: <k_j, table[index_ij]>, (B, H, Nq, Nk).

    k is (B, H, Nk, D), index (Nq, Nk) or (B, Nq, Nk).
    """
    return _picked(k, part, _zero_last(index, part.table.shape[1], transposed=True)).mT


def _picked(x: Tensor, part: RelativeVectors, index: Tensor) -> Tensor:
    product = F.pad(x @ part.table.to(x.dtype).mT, (0, 1))  # a last column of zeros
    return product.gather(-1, _per_head(index).expand(*product.shape[:-1], index.shape[-1]))


def value_output(weights: Tensor, part: RelativeVectors, index: Tensor) -> Tensor:
    """sum_j weights_ij table[index_ij] for weights (B, H, Nq, Nk); gives (B, H, Nq, D).

    The weights of one relation are summed first, so the cost is R, not Nk, rows of the table a query.
    """
    relations = part.table.shape[1]
    index = _per_head(_zero_last(index, relations, transposed=False)).expand(weights.shape)
    buckets = weights.new_zeros(*weights.shape[:-1], relations + 1).scatter_add_(-1, index, weights)
    return buckets[..., :relations] @ part.table.to(weights.dtype)


def position_logits(q: Tensor, k: Tensor, terms: PositionTerms, scale: float) -> Tensor | None:
    """Everything the terms add to the logits, (B or 1, H or 1, Nq, Nk), from unrotated q and k; None if nothing."""
    total: Tensor | None = None
    for part in terms.on_query:
        added = query_logits(q, part, dense_index(terms, part))
        total = added if total is None else total + added
    for part in terms.on_key:
        added = key_logits(k, part, dense_index(terms, part))
        total = added if total is None else total + added
    if total is not None:
        total = total * scale
    for left, right in terms.features:
        added = left @ right.mT
        total = added if total is None else total + added
    bias = dense_bias(terms)
    if bias is None:
        return total
    bias = bias if bias.ndim == 4 else bias[None]
    return bias if total is None else total + bias


@once_per_forward
def _zero_last(index: Tensor, relations: int, *, transposed: bool) -> Tensor:
    """The index with -1, the zero vector, as one relation more; transposed, it is still read along its rows."""
    return (index.mT.contiguous() if transposed else index).remainder(relations + 1)


def _per_head(index: Tensor) -> Tensor:
    return index[:, None] if index.ndim == 3 else index


def all_visible(q: Tensor, k: Tensor, terms: PositionTerms, visible: Tensor | None) -> Tensor | None:
    """The terms' visibility and the caller's mask together, with at most four axes; None where all is visible."""
    own = dense_visible(terms, q.device)
    return intersect(own, None if visible is None else callers_mask(q, k, visible))


def callers_mask(q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
    """The caller's mask with four axes, each of them 1 or that of the logits.

    Raises:
        ValueError: another dtype or shape. A mask with one row for all queries, such as key padding, is welcome.
    """
    rows, columns = visible.shape[-2:] if visible.ndim > 1 else (None, None)
    queries, keys = 1 if rows == 1 else q.shape[2], 1 if columns == 1 else k.shape[2]
    return as_batch_head(visible, q.shape[0], q.shape[1], queries=queries, keys=keys)


def _weights(q: Tensor, k: Tensor, terms: PositionTerms, options: Options, mix: Mix | None = None) -> Tensor:
    dtype = torch.promote_types(q.dtype, torch.float32)
    with full_precision(q.device):
        q, k = q.to(dtype), k.to(dtype)
        turned_q, turned_k = placed_plainly(q, k, terms)
        logits = turned_q @ turned_k.mT * options.scale
        added = position_logits(q, k, terms, options.scale)
        if added is not None:
            logits = logits + added.to(dtype)
        if options.logit_clip is not None:
            logits = options.logit_clip * torch.tanh(logits / options.logit_clip)
        if mix is not None:
            logits = mix(logits)
        if options.visible is None:
            return logits.softmax(-1)
        seen, empty = unmask_empty_rows(options.visible)
        logits = logits.masked_fill(~seen, float("-inf"))
        return logits.softmax(-1).masked_fill(empty, 0.0)


def eager(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    """The kernel ``"eager"``: the definition in the dtype of ``v``, and anything the terms can say."""
    weights = F.dropout(_weights(q, k, terms, options), options.dropout_p)
    with full_precision(q.device):
        out = weights @ v.to(weights.dtype)
        for part in terms.on_value:
            out = out + value_output(weights, part, dense_index(terms, part))
    return out.to(v.dtype)
