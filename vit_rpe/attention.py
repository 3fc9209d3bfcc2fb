"""Attention with position terms: the definition, and the kernels that compute it.

    logits = s (q k^T + on_query + on_key) + bias,   weights = softmax(logits over visible keys)
    output = weights v + on_value,                    s = scale * terms.scale

with q and k rotated first where the terms rotate (relative vectors meet the unrotated q and k). A query that sees no
key gets zero weights and a zero output in every kernel.

Legend: B batch, H heads, D head width, Dv value width, Nq/Nk query/key tokens with prefix, R number of relations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.masks import as_batch_head, intersect
from vit_rpe.precision import full_precision
from vit_rpe.suggest import unknown_name
from vit_rpe.terms import PositionTerms, RelativeVectors, dense_bias, dense_index


class Options(NamedTuple):
    """What a kernel needs beside q, k, v and the terms. ``scale`` already holds ``terms.scale``."""

    scale: float
    visible: Tensor | None
    dropout_p: float
    logit_clip: float | None


class Kernel(NamedTuple):
    """One way to compute attention. ``refuses`` gives the reason why it cannot, or None."""

    run: Callable[[Tensor, Tensor, Tensor, PositionTerms, Options], Tensor]
    refuses: Callable[[PositionTerms, Options], str | None]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: PositionTerms,
    *,
    scale: float,
    visible: Tensor | None = None,
    dropout_p: float = 0.0,
    logit_clip: float | None = None,
    impl: str = "auto",
) -> Tensor:
    """Apply attention with position terms.

    Args:
        q: (B, H, Nq, D), k: (B, H, Nk, D), v: (B, H, Nk, Dv).
        terms: what position adds, for the grids q and k lie on.
        scale: softmax scale, usually D ** -0.5.
        visible: bool mask (B, Nq, Nk) or (B, H, Nq, Nk), 1 for an explicit broadcast; intersected with the terms'.
        dropout_p: probability of dropping a weight; the caller passes 0 in evaluation.
        logit_clip: soft cap c, logits -> c tanh(logits / c) before masking; None for no cap.
        impl: ``"auto"``, or a kernel by name (:data:`KERNELS`).

    Returns:
        (B, H, Nq, Dv) in the dtype of ``v``.

    Raises:
        ValueError: an unknown kernel, one that cannot express these terms, or a mask of another shape.
    """
    options = Options(scale * terms.scale, _visible(q, terms, visible), dropout_p, logit_clip)
    if impl == "auto":
        impl = choose(terms, options)
    elif impl not in KERNELS:
        raise unknown_name("attn_impl", impl, ["auto", *KERNELS])
    reason = KERNELS[impl].refuses(terms, options)
    if reason is not None:
        raise ValueError(f"attn_impl={impl!r} cannot compute this attention: {reason}")
    return KERNELS[impl].run(q, k, v, terms, options)


def attention_weights(
    q: Tensor,
    k: Tensor,
    terms: PositionTerms,
    *,
    scale: float,
    visible: Tensor | None = None,
    logit_clip: float | None = None,
) -> Tensor:
    """The attention weights themselves: the definition every kernel is tested against.

    Args as in :func:`attend`. Computed in float32 or better, whatever the inputs and autocast.

    Returns:
        (B, H, Nq, Nk), rows sum to 1, or to 0 where no key is visible.
    """
    return _weights(q, k, terms, Options(scale * terms.scale, _visible(q, terms, visible), 0.0, logit_clip))


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
    """Turn the pairs (c, c + D/2) of x (B, H, N, D) by the angles whose (cos, sin) are given, each (..., N, D/2)."""
    if rotation is None:
        return x
    cos, sin = rotation
    a, b = x.to(torch.promote_types(x.dtype, cos.dtype)).chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def query_logits(q: Tensor, part: RelativeVectors, index: Tensor) -> Tensor:
    """<q_i, table[index_ij]> for q (B, H, Nq, D) and index (Nq, Nk) or (B, Nq, Nk); gives (B, H, Nq, Nk).

    One product with every row of the table and a gather; never an (Nq, Nk, D) tensor.
    """
    product = F.pad(q @ part.table.to(q.dtype).mT, (0, 1))  # a last column of zeros for index -1
    index = _per_head(index.remainder(part.table.shape[1] + 1))
    return product.gather(-1, index.expand(*product.shape[:-1], index.shape[-1]))


def key_logits(k: Tensor, part: RelativeVectors, index: Tensor) -> Tensor:
    """<k_j, table[index_ij]> for k (B, H, Nk, D) and index (Nq, Nk) or (B, Nq, Nk); gives (B, H, Nq, Nk)."""
    return query_logits(k, part, index.mT).mT


def value_output(weights: Tensor, part: RelativeVectors, index: Tensor) -> Tensor:
    """sum_j weights_ij table[index_ij] for weights (B, H, Nq, Nk); gives (B, H, Nq, D).

    The weights of one relation are summed first, so the cost is R, not Nk, rows of the table a query.
    """
    relations = part.table.shape[1]
    index = _per_head(index.remainder(relations + 1)).expand(weights.shape)
    buckets = weights.new_zeros(*weights.shape[:-1], relations + 1).scatter_add(-1, index, weights)
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
    bias = dense_bias(terms)
    if bias is None:
        return total
    bias = bias if bias.ndim == 4 else bias[None]
    return bias if total is None else total + bias


def _per_head(index: Tensor) -> Tensor:
    return index[:, None] if index.ndim == 3 else index


def _visible(q: Tensor, terms: PositionTerms, visible: Tensor | None) -> Tensor | None:
    if visible is not None:
        visible = as_batch_head(visible, q.shape[0], q.shape[1])
    return intersect(terms.visible, visible)


def _weights(q: Tensor, k: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    dtype = torch.promote_types(q.dtype, torch.float32)
    with full_precision(q.device):
        q, k = q.to(dtype), k.to(dtype)
        logits = rotate(q, terms.rotate_q) @ rotate(k, terms.rotate_k).mT * options.scale
        added = position_logits(q, k, terms, options.scale)
        if added is not None:
            logits = logits + added.to(dtype)
        if options.logit_clip is not None:
            logits = options.logit_clip * torch.tanh(logits / options.logit_clip)
        if options.visible is None:
            return logits.softmax(-1)
        blind = ~options.visible.any(-1, keepdim=True)
        logits = logits.masked_fill(~(options.visible | blind), float("-inf"))
        return logits.softmax(-1).masked_fill(blind, 0.0)


def _eager(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    weights = F.dropout(_weights(q, k, terms, options), options.dropout_p)
    with full_precision(q.device):
        out = weights @ v.to(weights.dtype)
        for part in terms.on_value:
            out = out + value_output(weights, part, dense_index(terms, part))
    return out.to(v.dtype)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    mask = position_logits(q, k, terms, options.scale)
    if mask is not None:
        mask = mask.to(q.dtype)
    blind: Tensor | None = None
    if options.visible is not None:
        # A row without visible keys is opened and zeroed afterwards: backends differ on what they make of it.
        blind = ~options.visible.any(-1, keepdim=True)
        seen = options.visible | blind
        mask = seen if mask is None else mask.masked_fill(~seen, float("-inf"))
    if mask is not None and not torch.is_grad_enabled():
        mask = mask.detach()
    q, k = rotate(q, terms.rotate_q), rotate(k, terms.rotate_k)
    out = F.scaled_dot_product_attention(q, k, v, mask, options.dropout_p, scale=options.scale)
    return out if blind is None else out.masked_fill(blind, 0.0)


def _sdpa_refuses(terms: PositionTerms, options: Options) -> str | None:
    if terms.on_value:
        return "relative vectors on the values need the attention weights; use 'eager'"
    if options.logit_clip is not None:
        return "logit_clip needs the logits; use 'eager'"
    return None


KERNELS: dict[str, Kernel] = {
    "eager": Kernel(_eager, lambda terms, options: None),
    "sdpa": Kernel(_sdpa, _sdpa_refuses),
}


def choose(terms: PositionTerms, options: Options) -> str:
    """The kernel ``"auto"`` stands for: the fused one wherever it can express the terms."""
    return "eager" if _sdpa_refuses(terms, options) else "sdpa"
