"""torch's fused attention with the terms as one additive mask, on its fastest kernel that is right for the case.

Legend: B batch, H heads, D head width, Nq/Nk query/key tokens with prefix.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.attention.per_axis import absorb_constants, axis_logits
from vit_rpe.attention.placement import placed
from vit_rpe.attention.reference import Options, eager
from vit_rpe.position.masks import unmask_empty_rows
from vit_rpe.position.offset_tables import Allocate
from vit_rpe.position.terms import PositionTerms

CUDA_ALIGNMENT = 8


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options, allocate: Allocate | None = None
) -> Tensor:
    """The kernel ``"sdpa"``; ``allocate`` gives memory for the mask, in inference."""
    shifted, rest = absorb_constants(q, terms)
    mask = axis_logits(q, k, rest, options.scale, allocate)
    if mask is not None and needs_eager(q, k, v, mask):
        return eager(q, k, v, terms, options)
    q, k = placed(shifted, k, terms)
    return masked_sdpa(q, k, v, mask, options)


def sdpa_refuses(terms: PositionTerms) -> str | None:
    """Why the terms cannot be computed so, or None."""
    if terms.on_value:
        return "relative vectors on the values need the attention weights; use 'eager'"
    return None


def needs_eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> bool:
    """Whether only the mask needs a gradient on CUDA, where torch's fused backward has read memory it never wrote."""
    only_mask = mask.requires_grad and not (q.requires_grad or k.requires_grad or v.requires_grad)
    return only_mask and torch.is_grad_enabled() and q.device.type == "cuda"


def masked_sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: Options) -> Tensor:
    """SDPA of placed q, k with an additive mask broadcasting to (B, H, Nq, Nk) and ``options.visible``.

    A query that sees no key gets all of them for the kernel and zeros after it: backends differ on such a row.
    """
    if mask is not None:
        mask = mask.to(q.dtype)
        if not torch.is_grad_enabled():
            mask = mask.detach()  # a mask that seems to need a gradient costs the fused kernel
    empty: Tensor | None = None
    if options.visible is not None:
        seen, empty = unmask_empty_rows(options.visible)
        mask = seen if mask is None else mask.masked_fill(~seen, float("-inf"))
    if mask is not None:
        if mask.requires_grad and by_products(q, options.dropout_p):
            logits = torch.matmul(q * options.scale, k.mT)  # in the dtype of autocast where that is on
            logits = logits.add_(mask) if logits.dtype == mask.dtype else logits + mask
            out = logits.softmax(-1) @ v
            return out if empty is None else out.masked_fill(empty, 0.0)
        if q.device.type == "cuda":
            mask = aligned(mask)
    out = _of_one_width(q, k, v, mask, options)
    return out if empty is None else out.masked_fill(empty, 0.0)


def _of_one_width(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: Options) -> Tensor:
    """SDPA with q, k and v padded to one width, which the fused kernels ask for."""
    width = v.shape[-1]
    missing = q.shape[-1] - width
    if missing > 0:
        v = F.pad(v, (0, missing))
    elif missing < 0:
        q, k = F.pad(q, (0, -missing)), F.pad(k, (0, -missing))
    out = F.scaled_dot_product_attention(q, k, v, mask, options.dropout_p, scale=options.scale)
    return out[..., :width] if missing > 0 else out


def by_products(q: Tensor, dropout_p: float) -> bool:
    """Whether plain products are right and faster where the mask needs a gradient.

    torch's fused CPU kernel has none for its mask, and what torch falls back to scales q and k both.
    """
    full = q.dtype in (torch.float32, torch.float64)
    return full and q.device.type == "cpu" and dropout_p == 0.0 and not torch.compiler.is_compiling()


def aligned(mask: Tensor) -> Tensor:
    """The same values with rows that begin at multiples of 8 elements, as CUDA kernels want them."""
    missing = -mask.shape[-1] % CUDA_ALIGNMENT
    if torch.compiler.is_compiling() or missing == 0:
        return mask
    return F.pad(mask, (0, missing))[..., : mask.shape[-1]]
