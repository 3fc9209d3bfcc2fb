"""The table of kernels, and the choice between them.

``"auto"`` is decided by what the terms are made of, never by a size that may be symbolic; docs/performance.md has the
measurements behind each rule. Layers and models know no kernel: what they want to know of one they ask here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from torch import Tensor

from vit_rpe.attention.checks import check_call
from vit_rpe.attention.kernels.at_once import suits
from vit_rpe.attention.kernels.explicit_weights import explicit_weights
from vit_rpe.attention.kernels.flex import flex, flex_cannot, flex_refuses
from vit_rpe.attention.kernels.fold import fold, fold_refuses
from vit_rpe.attention.kernels.sdpa import sdpa, sdpa_refuses
from vit_rpe.attention.kernels.windows import LARGE, build_in_windows, in_windows, pays, pays_to_build, windows_refuse
from vit_rpe.attention.lazy_terms import LazyTerms, Position, terms_of
from vit_rpe.attention.reference import Options, all_visible, eager
from vit_rpe.checks import unknown_name, warn_renamed
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.geometry_cache import is_transformed
from vit_rpe.position.terms import PositionTerms, dense_bias, hide_in_table


class Kernel(NamedTuple):
    """One way to compute attention.

    Attributes:
        run: attention of q, k, v with terms.
        refuses: the reason why it cannot compute such terms, or None.
        clips: computes ``logit_clip``.
        cuts: masks told by the grids that it reads from the terms itself; for all others they are part of
            ``options.visible``.
        cannot: the reason why it cannot make a call whose terms it can compute (device, dtype, dropout), or None.
    """

    run: Callable[[Tensor, Tensor, Tensor, PositionTerms, Options], Tensor]
    refuses: Callable[[PositionTerms], str | None] = lambda terms: None
    clips: bool = False
    cuts: tuple[str, ...] = ()
    cannot: Callable[[Tensor, Tensor, Tensor, PositionTerms, Options], str | None] = lambda *call: None


KERNELS: dict[str, Kernel] = {
    "eager": Kernel(eager, clips=True),
    "sdpa": Kernel(sdpa, sdpa_refuses),
    "fold": Kernel(fold, fold_refuses),
    "windows": Kernel(in_windows, windows_refuse, cuts=("geometric_mask", "offset_visible")),
    "explicit_weights": Kernel(explicit_weights),
    "flex": Kernel(flex, flex_refuses, clips=True, cuts=("geometric_mask",), cannot=flex_cannot),
}
OLD_NAMES = {"weighted": "explicit_weights"}


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Position,
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
        terms: what position adds, for the grids q and k lie on; :class:`LazyTerms` where it is not built yet.
        scale: softmax scale, usually D ** -0.5.
        visible: bool mask (B, Nq, Nk) or (B, H, Nq, Nk), 1 for an explicit broadcast; intersected with the terms'.
        dropout_p: probability of dropping a weight; the caller passes 0 in evaluation.
        logit_clip: soft cap c, logits -> c tanh(logits / c) before masking; None for no cap.
        impl: ``"auto"``, or a kernel by name (:data:`KERNELS`).

    Returns:
        (B, H, Nq, Dv) in the dtype of ``v``.

    Raises:
        ValueError: an unknown kernel, one that cannot express these terms, or shapes of q, k, v, terms and masks that
            do not belong together.
    """
    if impl != "auto":
        impl = kernel_name(impl)
    if isinstance(terms, LazyTerms):
        cut = impl == "windows" or (impl == "auto" and pays_to_build(q, k, terms))
        if cut and logit_clip is None and not is_transformed():
            return build_in_windows(q, k, v, terms, scale=scale, visible=visible, dropout_p=dropout_p)
        terms = terms.whole()
    check_call(q, k, v, terms)
    if visible is None:
        terms = hide_in_table(terms)
    if impl == "auto":
        impl = choose(q, k, terms, logit_clip)
    else:
        check_kernel(impl, terms, logit_clip=logit_clip)
    # torch.func and forward mode are for the definition: fused kernels and hand-written gradients know neither
    kernel = KERNELS["eager" if is_transformed() else impl]
    left: dict[str, Any] = dict.fromkeys(kernel.cuts)
    seen = all_visible(q, k, terms._replace(**left), visible)
    options = Options(scale * terms.scale, seen, dropout_p, logit_clip)
    reason = kernel.cannot(q, k, v, terms, options)
    if reason is not None:
        raise _refusal(impl, reason)
    return kernel.run(q, k, v, terms, options)


def choose(q: Tensor, k: Tensor, terms: PositionTerms, logit_clip: float | None) -> str:
    """The kernel ``"auto"`` stands for: the fused one wherever it can express the terms, in windows on large grids."""
    if logit_clip is not None:
        return "eager"
    return "windows" if pays(q, k, terms) else suits(q, terms)


def kernel_name(impl: str) -> str:
    """The name of a kernel as it is today; ``"auto"`` stays.

    Raises:
        ValueError: an unknown name.
    """
    if impl in OLD_NAMES:
        new = OLD_NAMES[impl]
        warn_renamed(f"attn_impl={impl!r}", repr(new), stacklevel=4)
        return new
    if impl != "auto" and impl not in KERNELS:
        raise unknown_name("attn_impl", impl, ["auto", *KERNELS])
    return impl


def check_kernel(impl: str, terms: Position | None = None, *, logit_clip: float | None = None) -> str:
    """Refuse a kernel that cannot compute such attention, where a layer or model is built.

    Args:
        impl: ``"auto"``, or a kernel by name.
        terms: what position adds, on whatever grid; None where it is not known yet, and only the rest is judged.
        logit_clip: as for :func:`attend`.

    Returns:
        The name of the kernel as it is today.

    Raises:
        ValueError: an unknown kernel, or the reason why it cannot.
    """
    impl = kernel_name(impl)
    if impl == "auto":
        return impl
    reason = None
    if logit_clip is not None and not KERNELS[impl].clips:
        reason = "logit_clip needs the logits; use 'eager'"
    elif terms is not None and not (impl == "windows" and isinstance(terms, LazyTerms)):
        reason = KERNELS[impl].refuses(terms_of(terms))
    if reason is not None:
        raise _refusal(impl, reason)
    return impl


def _refusal(impl: str, reason: str) -> ValueError:
    return ValueError(f"attn_impl={impl!r} cannot compute this attention: {reason}")


def kernels_for(terms: PositionTerms) -> list[str]:
    """The kernels that can compute attention with such terms."""
    return [name for name, kernel in KERNELS.items() if kernel.refuses(terms) is None]


def materialize_bias(terms: PositionTerms) -> PositionTerms:
    """Spread tables over offsets into one ``bias`` now, for terms that several layers are going to use.

    Not where the bias is so large that attention builds it window by window, nor where sizes are symbols.
    """
    if not terms.offset_bias:
        return terms
    assert terms.grids is not None
    heads = max(table.shape[0] for table in terms.offset_bias)
    sizes = (heads, *(grid.num_tokens for grid in terms.grids))
    if not all(type(size) is int for size in sizes) or prod(sizes) > LARGE // 4:
        return terms
    return terms._replace(bias=dense_bias(terms._replace(axis_bias=())), offset_bias=(), prefix_bias=None)


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
    """Deprecated: :func:`attend` with :class:`LazyTerms` and ``impl="windows"``."""
    warn_renamed("attend_by_window", "attend(q, k, v, LazyTerms(q_grid, k_grid, build), impl='windows')")
    lazy = LazyTerms(grid, grid, lambda part, keys: build(part))
    return attend(q, k, v, lazy, scale=scale, visible=visible, dropout_p=dropout_p, impl="windows")
