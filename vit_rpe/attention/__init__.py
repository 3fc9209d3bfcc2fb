"""Attention with position terms: the definition (``attention_weights``), and ``attend`` with its kernels."""

from vit_rpe.attention.call import AttentionCall, check_mixing
from vit_rpe.attention.dispatch import (
    KERNELS,
    Kernel,
    attend,
    attend_by_window,
    check_kernel,
    choose,
    kernels_for,
    materialize_bias,
)
from vit_rpe.attention.lazy_terms import LazyTerms
from vit_rpe.attention.reference import (
    HeadMix,
    MixedByLayer,
    Options,
    attention_weights,
    key_logits,
    position_logits,
    query_logits,
    value_output,
)
from vit_rpe.attention.rotation import rotate

__all__ = [
    "KERNELS",
    "AttentionCall",
    "HeadMix",
    "Kernel",
    "LazyTerms",
    "MixedByLayer",
    "Options",
    "attend",
    "attend_by_window",
    "attention_weights",
    "check_kernel",
    "check_mixing",
    "choose",
    "kernels_for",
    "key_logits",
    "materialize_bias",
    "position_logits",
    "query_logits",
    "rotate",
    "value_output",
]
