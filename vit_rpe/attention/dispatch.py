"""The table of kernels, and the choice between them.

``"auto"`` is decided by what the terms are made of, never by a size that may be symbolic; docs/performance.md has the
measurements behind each rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from vit_rpe.attention.kernels.explicit_weights import weighted, weighted_refuses
from vit_rpe.attention.kernels.fold import fold, fold_refuses
from vit_rpe.attention.kernels.sdpa import sdpa, sdpa_refuses
from vit_rpe.attention.kernels.windows import each_window, in_windows, pays, plan_built_windows, windows_refuse
from vit_rpe.attention.reference import Options, all_visible, callers_mask, eager
from vit_rpe.checks import unknown_name
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.geometry_cache import is_transformed
from vit_rpe.position.slicing import window_grid
from vit_rpe.position.terms import PositionTerms


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
    options = Options(scale * terms.scale, all_visible(q, k, terms, visible), dropout_p, logit_clip)
    name = choose(q, k, terms, options) if impl == "auto" else impl
    if name not in KERNELS:
        raise unknown_name("attn_impl", impl, ["auto", *KERNELS])
    reason = KERNELS[name].refuses(terms, options)
    if reason is not None:
        raise ValueError(f"attn_impl={impl!r} cannot compute this attention: {reason}")
    # torch.func and forward mode are for the definition: fused kernels and hand-written gradients know neither
    return KERNELS["eager" if is_transformed() else name].run(q, k, v, terms, options)


def attend_by_window(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    build: Callable[[TokenGrid], PositionTerms],
    grid: TokenGrid,
    *,
    scale: float,
    visible: Tensor | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """:func:`attend` where the terms are asked for one window of queries at a time and never exist as a whole.

    Args:
        q, k, v, scale, visible, dropout_p: as for :func:`attend`.
        build: the terms for queries on a part of ``grid``.
        grid: where the queries lie.

    Returns:
        (B, H, Nq, Dv).
    """
    if visible is not None:
        visible = callers_mask(q, k, visible)

    def run(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, visible: Tensor | None) -> Tensor:
        return attend(q, k, v, terms, scale=scale, visible=visible, dropout_p=dropout_p)

    def terms_of(first: int, last: int) -> PositionTerms:
        return build(window_grid(grid, first, last))

    return each_window(q, k, v, run, terms_of, grid, plan_built_windows(q, k, grid), visible)


KERNELS: dict[str, Kernel] = {
    "eager": Kernel(eager, lambda terms, options: None),
    "sdpa": Kernel(sdpa, sdpa_refuses),
    "fold": Kernel(fold, fold_refuses),
    "windows": Kernel(in_windows, windows_refuse),
    "weighted": Kernel(weighted, weighted_refuses),
}


def choose(q: Tensor, k: Tensor, terms: PositionTerms, options: Options) -> str:
    """The kernel ``"auto"`` stands for: the fused one wherever it can express the terms, in windows on large grids."""
    if sdpa_refuses(terms, options) is not None:
        if fold_refuses(terms, options) is None:
            return "fold"
        return "eager" if weighted_refuses(terms, options) else "weighted"
    return "windows" if pays(q, k, terms) else "sdpa"
