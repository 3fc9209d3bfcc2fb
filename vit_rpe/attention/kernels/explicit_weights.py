"""Attention whose weights exist as a tensor, by plain products: what relative vectors on the values ask for.

The logits come the short way (:func:`vit_rpe.attention.per_axis.axis_logits`), unlike those of the definition. In
inference on the CPU one sample's weights exist at a time, and are worked on in place while they are in cache.

Legend: B batch, H heads, Dv value width, Nq/Nk query/key tokens with prefix, Pq/Pk grid tokens, S tokens of one axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.attention.per_axis import absorb_constants, axis_logits, axis_value_output
from vit_rpe.attention.placement import placed
from vit_rpe.attention.reference import Options, value_output
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.geometry_cache import is_plain
from vit_rpe.position.masks import unmask_empty_rows
from vit_rpe.position.prefix import pad_tokens
from vit_rpe.position.terms import PositionTerms, RelativeVectors, grids_of
from vit_rpe.precision import full_precision


def explicit_weights(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    """The kernel ``"explicit_weights"``, in float32 or better."""
    dtype, width = torch.promote_types(q.dtype, torch.float32), v.dtype
    with full_precision(q.device):
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        shifted, rest = absorb_constants(q, terms)
        mask = axis_logits(q, k, rest, options.scale)
        mask, empty = masked(None if mask is None else mask.to(dtype), options.visible)
        q, k = placed(shifted, k, terms)
        if q.device.type == "cpu" and q.shape[0] > 0 and is_plain() and not torch.is_grad_enabled():
            out = _sample_by_sample(q, k, v, mask, empty, terms, options)
        else:
            logits = q @ k.mT * options.scale
            weights = (logits if mask is None else logits + mask).softmax(-1)
            out = _output(weights, v, terms, empty, options.dropout_p)
    return out.to(width)


def masked(mask: Tensor | None, visible: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The additive mask with -inf where a key is hidden, and which rows see no key: these are shown all keys."""
    if visible is None:
        return mask, None
    seen, empty = unmask_empty_rows(visible[(None,) * (4 - visible.ndim)])
    if mask is None:
        mask = torch.zeros((), device=visible.device)
    return mask.masked_fill(~seen, float("-inf")), empty


def _sample_by_sample(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, empty: Tensor | None, terms: PositionTerms, options: Options
) -> Tensor:
    outs = []
    logits = q.new_empty(q.shape[1], q.shape[2], k.shape[2])
    for number in range(q.shape[0]):
        if mask is None:
            torch.bmm(q[number], k[number].mT, out=logits).mul_(options.scale)
        else:
            added = mask[number if mask.shape[0] > 1 else 0].to(q.dtype).expand(logits.shape)
            torch.baddbmm(added, q[number], k[number].mT, alpha=options.scale, out=logits)
        torch.softmax(logits, -1, out=logits)
        rows = empty if empty is None or empty.shape[0] == 1 else empty[number : number + 1]
        own = terms._replace(on_value=tuple(_of_sample(part, number) for part in terms.on_value))
        outs.append(_output(logits[None], v[number : number + 1], own, rows, options.dropout_p))
    return torch.cat(outs) if len(outs) > 1 else outs[0]


def _of_sample(part: RelativeVectors, number: int) -> RelativeVectors:
    """The relations of one sample, where each has its own (dropped tokens)."""
    return part if part.index.ndim == 2 else part._replace(index=part.index[number : number + 1])


def _output(weights: Tensor, v: Tensor, terms: PositionTerms, empty: Tensor | None, dropout_p: float) -> Tensor:
    """Weights (B, H, Nq, Nk) to (B, H, Nq, Dv), with the vectors on the values."""
    if empty is not None:
        weights = weights.masked_fill(empty, 0.0)
    weights = F.dropout(weights, dropout_p)
    out = weights @ v
    per_axis = [part for part in terms.on_value if part.axis is not None]
    if per_axis:
        q_grid, k_grid = grids_of(terms)
        added = axis_value_output(_by_coordinate(weights, per_axis, q_grid, k_grid), per_axis, q_grid)
        out = out + pad_tokens(added, q_grid)
    for part in terms.on_value:
        if part.axis is None:
            out = out + value_output(weights, part, part.index)
    return out


def _by_coordinate(weights: Tensor, parts: Sequence[RelativeVectors], q_grid: TokenGrid, k_grid: TokenGrid) -> Tensor:
    """Weights summed over the keys of each coordinate, the axes of the parts side by side: (B, H, Pq, sum of S)."""
    pairs = weights[:, :, q_grid.num_prefix :, k_grid.num_prefix :].unflatten(-1, k_grid.size)
    sums = []
    for part in parts:
        others = [axis - k_grid.ndim for axis in range(k_grid.ndim) if axis != part.axis]
        sums.append(pairs.sum(others) if others else pairs)
    return torch.cat(sums, dim=-1) if len(sums) > 1 else sums[0]
