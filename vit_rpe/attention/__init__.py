"""Attention with position terms: the definition (``attention_weights``), and ``attend`` with its kernels."""

from vit_rpe.attention.dispatch import KERNELS, Kernel, attend, attend_by_window, choose
from vit_rpe.attention.reference import (
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
    "Kernel",
    "Options",
    "attend",
    "attend_by_window",
    "attention_weights",
    "choose",
    "key_logits",
    "position_logits",
    "query_logits",
    "rotate",
    "value_output",
]
