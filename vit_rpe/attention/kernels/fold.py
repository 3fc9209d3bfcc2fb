"""The exact fold: terms that depend on one coordinate at a time become extra channels of q, k and v.

    <q_i, k_j> + f_i[row_j] + g_j[column_i]  =  < [q_i, f_i, onehot(column_i)], [k_j, onehot(row_j), g_j] >

and weights summed per coordinate, which relative vectors on the values need, come out of attention to one-hot values.
Then a flash kernel runs with no mask. Costs sum_a S_a channels beside the D of a head. Prefix tokens have zero rows.

Legend: B batch, H heads, D head width, Dv value width, Sq/Sk tokens of one axis, Pq/Pk grid tokens, Nq/Nk with prefix.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vit_rpe.attention.kernels.sdpa import masked_sdpa, needs_eager
from vit_rpe.attention.per_axis import (
    absorb_constants,
    axis_logits,
    axis_value_output,
    channels,
    has_axis_logits,
    one_hots,
)
from vit_rpe.attention.placement import placed
from vit_rpe.attention.reference import Options, eager
from vit_rpe.position.prefix import pad_tokens
from vit_rpe.position.terms import PositionTerms


def fold(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    """The kernel ``"fold"``: per-axis parts by extra channels, whatever else there is by a mask."""
    whole = terms
    shifted, terms = absorb_constants(q, terms)
    rest = terms._replace(
        axis_bias=(),
        prefix_bias=None if has_axis_logits(terms) else terms.prefix_bias,
        on_query=tuple(part for part in terms.on_query if part.axis is None),
        on_key=tuple(part for part in terms.on_key if part.axis is None),
        features=(),
    )
    mask = axis_logits(q, k, rest, options.scale)
    if mask is not None and needs_eager(q, k, v, mask):
        return eager(q, k, v, whole, options)
    wide_q, wide_k = placed(shifted, k, terms)
    if has_axis_logits(terms):
        left, right = channels(q, k, terms, options.scale)
        wide_q = beside(wide_q, left / options.scale)
        wide_k = beside(wide_k, right)
    for left, right in terms.features:
        wide_q = beside(wide_q, left.to(q.dtype) / options.scale)
        wide_k = beside(wide_k, right.to(k.dtype))
    wide_v = _with_one_hots(v, terms) if terms.on_value else v
    out = masked_sdpa(wide_q, wide_k, wide_v, mask, options)
    return _values_of_positions(out, v.shape[-1], terms) if terms.on_value else out


def fold_refuses(terms: PositionTerms) -> str | None:
    """Why the terms cannot be computed so, or None."""
    if any(part.axis is None for part in terms.on_value):
        return "relative vectors on the values that depend on several axes at once need the weights; use 'eager'"
    vectors = (*terms.on_query, *terms.on_key, *terms.on_value)
    if not terms.axis_bias and not terms.features and all(part.axis is None for part in vectors):
        return "no part of these terms depends on one axis at a time; use 'sdpa'"
    return None


def features_fold(q: Tensor, terms: PositionTerms) -> bool:
    """Whether ``"auto"`` appends features to q and k: where no mask is left then, and it is faster and as exact.

    In low precision the two sides would lose what cancels in their product, so that it is made apart.
    """
    rest = (terms.axis_bias, terms.offset_bias, terms.on_query, terms.on_key, terms.on_value)
    alone = terms.bias is None and terms.prefix_bias is None and not any(rest)
    if not terms.features or not alone or q.dtype not in (torch.float32, torch.float64):
        return False
    learning = torch.is_grad_enabled() and any(side.requires_grad for pair in terms.features for side in pair)
    return learning or sum(pair.left.shape[-1] for pair in terms.features) <= q.shape[-1] // 2


def _with_one_hots(v: Tensor, terms: PositionTerms) -> Tensor:
    assert terms.grids is not None
    grid = terms.grids[1]
    axes = tuple(part.axis for part in terms.on_value if part.axis is not None)
    marks = one_hots(grid, axes, v.dtype, v.device)
    return beside(v, pad_tokens(marks, grid))


def beside(x: Tensor, *features: Tensor) -> Tensor:
    """Channels appended to x (B, H, N, D), each (B or 1, H or 1, N, F)."""
    return torch.cat([x, *(part.expand(*x.shape[:2], -1, -1) for part in features)], dim=-1)


def _values_of_positions(out: Tensor, width: int, terms: PositionTerms) -> Tensor:
    """The first ``width`` channels, plus what the relative vectors make of the weights in the others."""
    assert terms.grids is not None
    grid = terms.grids[0]
    lengths = sum(part.index.shape[1] for part in terms.on_value)
    weights = out[:, :, grid.num_prefix :, width : width + lengths]
    return out[..., :width] + pad_tokens(axis_value_output(weights, terms.on_value, grid), grid)
