"""Attention in windows of the query grid and groups of heads: for dense terms on large grids, and for local attention.

A window sees all keys that some of its queries see, so the result is exact; what is never there is the (H, Nq, Nk) bias
of the whole grid, nor, where a mask by geometry leaves keys out of reach, their share of the products. In training each
window is recomputed in backward, so that memory stays O(N sqrt N), with a radius O(N).

Legend: B batch, H heads, D head width, Nq/Nk query/key tokens with prefix.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vit_rpe.attention.checks import check_call
from vit_rpe.attention.cpu.scratch import Scratch
from vit_rpe.attention.kernels.at_once import at_once, suits
from vit_rpe.attention.kernels.each_window import Work, each_window
from vit_rpe.attention.kernels.window_plan import (
    Grids,
    Window,
    pairs_of,
    plan_built_windows,
    plan_local_windows,
    plan_windows,
)
from vit_rpe.attention.lazy_terms import LazyTerms
from vit_rpe.attention.per_axis import has_axis_logits
from vit_rpe.attention.placement import placed
from vit_rpe.attention.reference import Options, callers_mask
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.geometry_cache import is_plain
from vit_rpe.position.masks import GeometricMask, intersect, sees_itself
from vit_rpe.position.offset_tables import Allocate
from vit_rpe.position.slicing import Range, block_grid, take_block, take_heads
from vit_rpe.position.terms import PositionTerms, dense_bias, dense_visible, grids_of

LARGE = 2**26  # bytes of a whole bias from which windows pay
FEW = 2**18  # pairs of tokens below which windows of a mask by geometry do not pay
FEWER = 2  # times fewer pairs from which they do


def in_windows(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    """Attention for one window of queries after the other, so that no mask of all pairs is held (``"windows"``)."""
    grids, mask = grids_of(terms), terms.geometric_mask
    if terms.moves and not (terms.on_query or terms.on_key):
        q, k = placed(q, k, terms)  # once, not once a window
        terms = terms._replace(rotate_q=None, rotate_k=None, blocks_q=None, blocks_k=None, polar_q=None, polar_k=None)
    terms = terms._replace(visible=None)  # which is part of the options
    per_sample = terms.on_query or terms.on_key or terms.on_value or terms.features
    batch = q.shape[0] if per_sample else 1
    plan = plan_windows(q, k, grids, batch=batch) if mask is None else plan_local_windows(q, grids, mask, batch=batch)
    scratch = None if torch.is_grad_enabled() or not is_plain() else Scratch()
    allocate = None if scratch is None else scratch.take  # one window's at a time: the last one is no longer needed
    hidden = options.visible is not None or terms.offset_visible is not None
    alike = mask is not None and not hidden and terms.bias is None and sees_itself(*grids)
    bias_of_shape = _BiasOfShape(q.dtype, q.device, allocate)

    def terms_of(window: Window, heads: Range) -> PositionTerms:
        part = take_heads(take_block(terms, window.queries, window.keys), *heads)
        if alike:
            return bias_of_shape(part, (window.shape, heads))
        if allocate is not None and part.offset_bias and not has_axis_logits(part):
            return part._replace(bias=dense_bias(part, allocate), offset_bias=(), prefix_bias=None)
        return part

    def run(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, visible: Tensor | None) -> Tensor:
        seen = intersect(dense_visible(terms, q.device), visible)
        memory = allocate if has_axis_logits(terms) and terms.offset_bias == () else None
        return at_once(q, k, v, terms, options._replace(visible=seen), memory)

    return each_window(q, k, v, grids, plan, Work(run, terms_of, options.visible, ahead=alike))


def windows_refuse(terms: PositionTerms) -> str | None:
    """Why the terms cannot be computed so, or None."""
    return "the terms do not say on which grids queries and keys lie; use 'sdpa'" if terms.grids is None else None


class _BiasOfShape:
    """What depends on offsets only, bias and mask by geometry, as one bias: made once for windows of one shape that
    follow one another."""

    def __init__(self, dtype: torch.dtype, device: torch.device, allocate: Allocate | None) -> None:
        self.dtype, self.device, self.allocate = dtype, device, allocate
        self.key: object = None
        self.bias: Tensor | None = None

    def __call__(self, terms: PositionTerms, key: object) -> PositionTerms:
        """Terms of a window without a bias per pair, with the bias of its shape in place of offset tables and mask."""
        apart = terms.prefix_bias if has_axis_logits(terms) else None  # goes with the parts per axis
        if self.bias is None or key != self.key:
            self.key, self.bias = key, self._made(terms if apart is None else terms._replace(prefix_bias=None))
        return terms._replace(bias=self.bias, offset_bias=(), prefix_bias=apart, geometric_mask=None)

    def _made(self, terms: PositionTerms) -> Tensor:
        grids = grids_of(terms)
        assert terms.geometric_mask is not None
        hidden = ~terms.geometric_mask.dense(*grids, self.device)
        bias = dense_bias(terms._replace(axis_bias=()), self.allocate)
        if bias is None:
            bias = torch.zeros(1, *hidden.shape, dtype=self.dtype, device=self.device)
        return bias.to(self.dtype).masked_fill(hidden, float("-inf"))


def dense_bytes(q: Tensor, k: Tensor, terms: PositionTerms) -> int:
    """Size of the additive mask that the terms make when all of it exists at once."""
    content = bool(terms.on_query or terms.on_key or terms.features)
    tables = [part.bias for part in terms.axis_bias] + list(terms.offset_bias)
    tables += [] if terms.prefix_bias is None else [terms.prefix_bias]
    if not content and not tables:
        return 0
    heads = q.shape[1] if content else max(table.shape[0] for table in tables)
    batch = q.shape[0] if content else 1
    return batch * heads * q.shape[2] * k.shape[2] * q.element_size()


def pays(q: Tensor, k: Tensor, terms: PositionTerms) -> bool:
    """Whether ``"auto"`` takes windows: a bias too large to build at once, or keys that need not be touched; on sizes
    that are known numbers."""
    if terms.grids is None or not are_known(*terms.grids) or not _known(q, k):
        return False
    return _local_pays(q, terms.grids, terms.geometric_mask) or (
        suits(q, terms) == "sdpa" and dense_bytes(q, k, terms) >= LARGE
    )


def pays_to_build(q: Tensor, k: Tensor, lazy: LazyTerms) -> bool:
    """The same for terms with an entry for every pair and head, which are not built yet."""
    if not are_known(lazy.q_grid, lazy.k_grid) or not _known(q, k):
        return False
    if _local_pays(q, (lazy.q_grid, lazy.k_grid), lazy.geometric_mask):
        return True
    return q.shape[1] * q.shape[2] * k.shape[2] * q.element_size() >= LARGE


def are_known(*grids: TokenGrid) -> bool:
    """Whether the sizes of all grids are numbers, no symbols."""
    return all(type(size) is int for grid in grids for size in grid.size)


def _known(q: Tensor, k: Tensor) -> bool:
    return not torch.compiler.is_exporting() and all(type(size) is int for size in (*q.shape, *k.shape))


def _local_pays(q: Tensor, grids: Grids, mask: GeometricMask | None) -> bool:
    if mask is None:
        return False
    pairs = grids[0].num_tokens * grids[1].num_tokens
    return pairs >= FEW and pairs_of(plan_local_windows(q, grids, mask), grids) * FEWER <= pairs


def build_in_windows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lazy: LazyTerms,
    *,
    scale: float,
    visible: Tensor | None,
    dropout_p: float,
) -> Tensor:
    """Attention with terms that are built for one window of queries at a time, whatever they hold."""
    if visible is not None:
        visible = callers_mask(q, k, visible)
    grids, mask = (lazy.q_grid, lazy.k_grid), lazy.geometric_mask
    plan = plan_built_windows(q, k, grids) if mask is None else plan_local_windows(q, grids, mask, all_heads=True)

    def terms_of(window: Window, heads: Range) -> PositionTerms:
        return lazy.of(block_grid(grids[0], window.queries), block_grid(grids[1], window.keys))

    def run(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, visible: Tensor | None) -> Tensor:
        check_call(q, k, v, terms)
        seen = intersect(dense_visible(terms, q.device), visible)
        return at_once(q, k, v, terms, Options(scale * terms.scale, seen, dropout_p, None))

    return each_window(q, k, v, grids, plan, Work(run, terms_of, visible))
