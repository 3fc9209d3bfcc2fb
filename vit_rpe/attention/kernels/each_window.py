"""The loop over windows of queries and groups of heads, and how their gradients come together.

Legend: B batch, H heads, D head width, Dv value width, Nq/Nk query/key tokens with prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vit_rpe.attention.kernels.window_plan import Grids, Plan, Window, num_tokens
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.geometry_cache import is_plain, is_transformed
from vit_rpe.position.slicing import Block, Range, cells_of, heads_of, run_of, tokens_of, whole_block
from vit_rpe.position.terms import PositionTerms

TermsOfWindow = Callable[[Window, Range], PositionTerms]
RunWindow = Callable[[Tensor, Tensor, Tensor, PositionTerms, Tensor | None], Tensor]


class Work(NamedTuple):
    """What is done in every window.

    Attributes:
        run: attention of one window, from its q, k, v, terms and visibility.
        terms_of: the terms of a window for a range of heads.
        visible: bool, for all queries, keys and heads, with four axes; None hides nothing.
        ahead: terms are made before their window is run, and kept for backward, because several windows share them.
    """

    run: RunWindow
    terms_of: TermsOfWindow
    visible: Tensor | None
    ahead: bool = False


def each_window(q: Tensor, k: Tensor, v: Tensor, grids: Grids, plan: Plan, work: Work) -> Tensor:
    """Attention one window and one group of heads after the other, recomputed in backward: (B, H, Nq, Dv)."""
    heads = q.shape[1]
    groups = [(first, min(first + plan.heads, heads)) for first in range(0, heads, plan.heads)]
    if not is_transformed() and not torch.is_grad_enabled():
        # (B, Nq, H, Dv) underneath, so that joining the heads afterwards copies nothing
        out = v.new_empty(q.shape[0], q.shape[2], heads, v.shape[3]).transpose(1, 2)
        for group in groups:
            q_group, k_group, v_group, found = (x[:, slice(*group)] for x in (q, k, v, out))
            _write_group(found, q_group, k_group, v_group, grids, plan, group, work)
        return out
    # Cut once: the gradient of each cut is then joined once, not padded to full size for every window.
    pieces = [x.split([stop - start for start, stop in groups], dim=1) for x in (q, k, v)]
    columns = [
        _group(q_group, k_group, v_group, grids, plan, group, work)
        for group, q_group, k_group, v_group in zip(groups, *pieces, strict=True)
    ]
    return torch.cat(columns, dim=1)


def _write_group(
    out: Tensor, q: Tensor, k: Tensor, v: Tensor, grids: Grids, plan: Plan, group: Range, work: Work
) -> None:
    """Attention of some heads, (B, h, Nq, Dv), written to its place."""
    for window in plan.windows:
        q_part = tokens_of(q, -2, grids[0], window.queries)
        k_part, v_part = (tokens_of(x, -2, grids[1], window.keys) for x in (k, v))
        found = _one_window(grids, window, group, work, None, q_part, k_part, v_part)
        run = run_of(grids[0], window.queries)
        if run is not None:
            out[:, :, slice(*run)] = found
        else:
            cells = cells_of(out, -2, grids[0], window.queries)
            cells.copy_(found.view(*found.shape[:2], *cells.shape[2:]))
    if plan.prefix is not None:
        out[:, :, : grids[0].num_prefix] = _prefix(q, k, v, grids, plan.prefix, group, work)


def _group(q: Tensor, k: Tensor, v: Tensor, grids: Grids, plan: Plan, group: Range, work: Work) -> Tensor:
    """Attention of some heads, (B, h, Nq, Dv), with gradients."""
    outs = [] if plan.prefix is None else [_prefix(q, k, v, grids, plan.prefix, group, work)]
    sizes = [num_tokens(window.queries, grids[0]) for window in plan.windows]
    order = None if plan.in_turn else _order(plan.windows, grids[0], q.device)
    parts = (q if order is None else q.index_select(2, order)).split(sizes, dim=2)
    for window, part in zip(plan.windows, parts, strict=True):
        terms = work.terms_of(window, group) if work.ahead else None
        attend = partial(_cut_and_attend, grids, window, group, work, terms)
        # torch.func and forward mode know no recomputation
        again = attend if is_transformed() else partial(checkpoint, attend, use_reentrant=False)
        found, k, v = again(part, k, v)
        outs.append(found)
    if order is None:
        return torch.cat(outs, dim=2)
    front, found = outs[: -len(sizes)], torch.cat(outs[-len(sizes) :], dim=2)
    found = found.index_select(2, order.argsort())
    return torch.cat([*front, found], dim=2) if front else found


def _prefix(q: Tensor, k: Tensor, v: Tensor, grids: Grids, window: Window, group: Range, work: Work) -> Tensor:
    """Attention of the prefix queries, (B, h, prefix, Dv)."""
    q = tokens_of(q, -2, grids[0], window.queries)
    k, v = (tokens_of(x, -2, grids[1], window.keys) for x in (k, v))
    return _one_window(grids, window, group, work, None, q, k, v)[:, :, : grids[0].num_prefix]


def _order(windows: list[Window], grid: TokenGrid, device: torch.device) -> Tensor:
    """Which token of the sequence each query is, window after window."""
    tokens = torch.arange(grid.num_tokens, device=device)[:, None]
    return torch.cat([tokens_of(tokens, -2, grid, window.queries) for window in windows])[:, 0]


def _cut_and_attend(
    grids: Grids, window: Window, group: Range, work: Work, terms: PositionTerms | None, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of one window, and keys and values for the next."""
    k_part, k = _cut(k, grids[1], window.keys)
    v_part, v = _cut(v, grids[1], window.keys)
    return _one_window(grids, window, group, work, terms, q, k_part, v_part), k, v


def _one_window(
    grids: Grids, window: Window, group: Range, work: Work, terms: PositionTerms | None, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    visible = work.visible
    if visible is not None:
        visible = tokens_of(tokens_of(visible, -2, grids[0], window.queries), -1, grids[1], window.keys)
        visible = heads_of(visible, *group)
    return work.run(q, k, v, work.terms_of(window, group) if terms is None else terms, visible)


def _cut(x: Tensor, grid: TokenGrid, block: Block) -> tuple[Tensor, Tensor]:
    """The tokens of a block (B, H, N, D), and x for whoever cuts it next: their gradients come together in place."""
    if block == whole_block(grid):
        return x, x
    if not is_plain():
        return tokens_of(x, -2, grid, block), x
    part, rest = _Cut.apply(x, grid, block)
    return part, rest


class _Cut(torch.autograd.Function):
    """A block of x, and x. Autograd's own gradient of a cut is as large as x, for every cut."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grid: TokenGrid, block: Block) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.grid, ctx.block = x.shape, grid, block
        return tokens_of(x, -2, grid, block).contiguous(), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, of_part: Tensor | None, of_rest: Tensor | None) -> tuple[Tensor | None, None, None]:
        grid, block = ctx.grid, ctx.block
        if of_part is None:
            return of_rest, None, None
        if of_rest is None:
            total = of_part.new_zeros(ctx.shape)
        else:
            # nobody but the next cut has made it, and nobody else has it
            total = of_rest.clone() if torch.is_grad_enabled() else of_rest
        prefix = grid.num_prefix if block.with_prefix else 0
        if prefix:
            total[:, :, :prefix] += of_part[:, :, :prefix]
        cells = cells_of(total, -2, grid, block)
        cells += of_part[:, :, prefix:].reshape(cells.shape)
        return total, None, None
