"""Attention of all queries and keys at hand at once, by the kernel that suits the terms."""

from __future__ import annotations

from torch import Tensor

from vit_rpe.attention.kernels.explicit_weights import explicit_weights
from vit_rpe.attention.kernels.fold import features_fold, fold, fold_refuses
from vit_rpe.attention.kernels.sdpa import sdpa, sdpa_refuses
from vit_rpe.attention.reference import Options
from vit_rpe.position.offset_tables import Allocate
from vit_rpe.position.terms import PositionTerms

OTHERS = {"fold": fold, "explicit_weights": explicit_weights}


def suits(q: Tensor, terms: PositionTerms) -> str:
    """The fused kernel wherever it can express the terms."""
    if sdpa_refuses(terms) is not None:
        return "explicit_weights" if fold_refuses(terms) else "fold"
    return "fold" if features_fold(q, terms) else "sdpa"


def at_once(
    q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options, allocate: Allocate | None = None
) -> Tensor:
    """Attention by the kernel that :func:`suits` names; ``allocate`` gives memory for a mask, in inference."""
    name = suits(q, terms)
    return sdpa(q, k, v, terms, options, allocate) if name == "sdpa" else OTHERS[name](q, k, v, terms, options)
