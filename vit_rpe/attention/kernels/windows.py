"""Attention in windows of the query grid and groups of heads, for dense terms on large grids.

Every window sees all keys, so the result is exact; what is never there is the (H, Nq, Nk) bias of the whole grid. A
window has the queries the kernels work best on, or fewer where its bias would be larger than ``BUDGET``. In
training each window is recomputed in backward, so that memory stays O(N sqrt N).

Legend: B batch, H heads, D head width, Nq/Nk query/key tokens with prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from math import gcd
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vit_rpe.attention.cpu.scratch import Scratch
from vit_rpe.attention.kernels.sdpa import sdpa, sdpa_refuses
from vit_rpe.attention.lazy_terms import LazyTerms
from vit_rpe.attention.per_axis import has_axis_logits
from vit_rpe.attention.reference import Options, callers_mask
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.geometry_cache import is_plain, is_transformed
from vit_rpe.position.slicing import Range, heads_of, rows_of, take_heads, take_rows, window_grid, window_tokens
from vit_rpe.position.terms import PositionTerms, dense_bias

BLOCK, BLOCKS = 256, 3  # torch's fused CPU kernel works on blocks of so many queries where there are 3 of them or more
BUDGET = 2**26  # bytes of one window's bias of one head, which may leave it fewer queries
GROUP = {"cpu": 2**24, "cuda": 2**28}  # bytes of one window's bias of several heads; on the CPU what stays in cache
LARGE = 2**26  # bytes of a whole bias from which windows pay

TermsOfWindow = Callable[[int, int], PositionTerms]
RunWindow = Callable[[Tensor, Tensor, Tensor, PositionTerms, Tensor | None], Tensor]


class Plan(NamedTuple):
    """Rows of the query grid in a window, and heads in a group."""

    rows: int
    heads: int


def in_windows(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    """Attention for one window of queries after the other, so that no mask of all pairs is held (``"windows"``)."""
    assert terms.grids is not None
    batch = q.shape[0] if terms.on_query or terms.on_key or terms.features else 1
    grid = terms.grids[0]
    scratch = None if torch.is_grad_enabled() or not is_plain() else Scratch()

    def run(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, visible: Tensor | None) -> Tensor:
        if scratch is not None and terms.offset_bias and not has_axis_logits(terms):
            bias = dense_bias(terms, scratch.take)  # one window's at a time: the last one is no longer needed
            terms = terms._replace(bias=bias, offset_bias=(), prefix_bias=None)
        return sdpa(q, k, v, terms, options._replace(visible=visible))

    plan = plan_windows(q, k, grid, batch=batch)
    return each_window(q, k, v, run, partial(take_rows, terms), grid, plan, options.visible)


def windows_refuse(terms: PositionTerms) -> str | None:
    """Why the terms cannot be computed so, or None."""
    if terms.grids is None:
        return "the terms do not say on which grids queries and keys lie; use 'sdpa'"
    return sdpa_refuses(terms)


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


def plan_windows(q: Tensor, k: Tensor, grid: TokenGrid, *, batch: int) -> Plan:
    """How many rows and heads at a time, for terms that can be cut into both.

    Args:
        grid: of the queries.
        batch: of the additive mask, 1 where it is the same for all samples.
    """
    width = grid.num_patches // grid.size[0]
    row = max(1, batch * width * k.shape[2] * q.element_size())  # bytes of one row of one head; no sample has none
    queries = BLOCK * _blocks(q)
    rows = max(1, min(grid.size[0], -(-queries // width), BUDGET // row))
    return Plan(rows, max(1, min(q.shape[1], _group(q) // (row * rows))))


def _blocks(q: Tensor) -> int:
    """Blocks of queries of one head in a window: with all samples, as many as occupy every thread equally often."""
    if q.device.type != "cpu" or torch.compiler.is_compiling():
        return BLOCKS
    threads = torch.get_num_threads()
    step = threads // gcd(threads, q.shape[0])
    return -(-BLOCKS // step) * step


def plan_built_windows(q: Tensor, k: Tensor, grid: TokenGrid) -> Plan:
    """How many rows at a time, for terms that come for all heads at once."""
    width = grid.num_patches // grid.size[0]
    row = q.shape[1] * width * k.shape[2] * q.element_size()
    return Plan(max(1, min(grid.size[0], _group(q) // row)), q.shape[1])


def _group(q: Tensor) -> int:
    return GROUP.get(q.device.type, GROUP["cpu"])


def each_window(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    run: RunWindow,
    terms_of: TermsOfWindow,
    grid: TokenGrid,
    plan: Plan,
    visible: Tensor | None,
) -> Tensor:
    """Attention one window and one group of heads after the other, recomputed in backward.

    Args:
        run: attention of one window, from its q, k, v, terms and visibility.
        terms_of: the terms, of all heads, of the queries in rows first to last (exclusive) of ``grid``.
        grid: of the queries.
        visible: bool, for all queries and heads, with four axes.

    Returns:
        (B, H, Nq, Dv).
    """
    heads = q.shape[1]
    spans = [(first, min(first + plan.rows, grid.size[0])) for first in range(0, grid.size[0], plan.rows)]
    groups = [(first, min(first + plan.heads, heads)) for first in range(0, heads, plan.heads)]
    tokens = [window_tokens(grid, *span) for span in spans]
    if not is_transformed() and not torch.is_grad_enabled():
        # (B, Nq, H, Dv) underneath, so that joining the heads afterwards copies nothing
        out = v.new_empty(q.shape[0], q.shape[2], heads, v.shape[3]).transpose(1, 2)
        for group, (span, place) in product(groups, zip(spans, tokens, strict=True)):
            k_group, v_group = k[:, slice(*group)], v[:, slice(*group)]
            part = q[:, slice(*group), slice(*place)]
            out[:, slice(*group), slice(*place)] = _one_window(
                run, terms_of, span, place, group, visible, part, k_group, v_group
            )
        return out
    # Cut once: the gradient of each cut is then joined once, not padded to full size for every window.
    pieces = [x.split([stop - start for start, stop in groups], dim=1) for x in (q, k, v)]
    columns = []
    for group, q_group, k_group, v_group in zip(groups, *pieces, strict=True):
        parts = zip(spans, tokens, q_group.split([stop - start for start, stop in tokens], dim=2), strict=True)
        outs = []
        for span, place, part in parts:
            window = partial(_one_window, run, terms_of, span, place, group, visible)
            # torch.func and forward mode know no recomputation
            again = partial(checkpoint, window, use_reentrant=False) if not is_transformed() else window
            outs.append(again(part, k_group, v_group))
        columns.append(torch.cat(outs, dim=2))
    return torch.cat(columns, dim=1)


def _one_window(
    run: RunWindow,
    terms_of: TermsOfWindow,
    span: Range,
    tokens: Range,
    group: Range,
    visible: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
) -> Tensor:
    if visible is not None:
        visible = heads_of(rows_of(visible, tokens), *group)
    return run(q, k, v, take_heads(terms_of(*span), *group), visible)


def pays(q: Tensor, k: Tensor, terms: PositionTerms) -> bool:
    """Whether ``"auto"`` takes windows: a bias too large to build at once, on sizes that are known numbers."""
    if terms.grids is None or not all(type(size) is int for size in terms.grids[0].size):
        return False
    known = not torch.compiler.is_exporting() and all(type(size) is int for size in (*q.shape, *k.shape))
    return known and dense_bytes(q, k, terms) >= LARGE


def pays_to_build(q: Tensor, k: Tensor) -> bool:
    """The same for terms with an entry for every pair and head, which are not built yet."""
    heads, queries, keys = q.shape[1], q.shape[2], k.shape[2]
    known = not torch.compiler.is_exporting() and type(queries) is int and type(keys) is int
    return known and heads * queries * keys * q.element_size() >= LARGE


def build_in_windows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lazy: LazyTerms,
    attend: Callable[..., Tensor],
    *,
    scale: float,
    visible: Tensor | None,
    dropout_p: float,
) -> Tensor:
    """Attention with terms that are built for one window of queries at a time, whatever they hold.

    Args:
        attend: attention of one window, with the arguments of :func:`vit_rpe.attend`.
    """
    if visible is not None:
        visible = callers_mask(q, k, visible)

    def run(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, visible: Tensor | None) -> Tensor:
        return attend(q, k, v, terms, scale=scale, visible=visible, dropout_p=dropout_p)

    def terms_of(first: int, last: int) -> PositionTerms:
        return lazy.of(window_grid(lazy.q_grid, first, last), lazy.k_grid)

    return each_window(q, k, v, run, terms_of, lazy.q_grid, plan_built_windows(q, k, lazy.q_grid), visible)
