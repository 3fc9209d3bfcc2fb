"""Attention on the CPU whose additive mask needs a gradient, by plain products.

torch's fused CPU kernel has no gradient for its mask, and falls back to unfused operations with a copy of the logits
for each step. Here the weights are the only thing kept, and each sample's logits are worked on in place while they are
in cache.

Legend: B batch, H heads, D head width, Dv value width, Nq/Nk query/key tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vit_rpe.precision import full_precision


def fits_unfused(q: Tensor, dropout_p: float) -> bool:
    """Whether :func:`unfused_attention` applies: full precision on the CPU, no dropout, not compiled."""
    full = q.dtype in (torch.float32, torch.float64)
    return full and q.device.type == "cpu" and dropout_p == 0.0 and not torch.compiler.is_compiling()


def unfused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """softmax(scale q k^T + mask) v with gradients for all four.

    Args:
        q: (B, H, Nq, D), k: (B, H, Nk, D), v: (B, H, Nk, Dv), all of one dtype.
        mask: float, broadcasts to (B, H, Nq, Nk); every row has a finite entry.

    Returns:
        (B, H, Nq, Dv).
    """
    return _MaskedAttention.apply(q, k, v, mask, scale)


class _MaskedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
        batch, heads, rows = q.shape[:3]
        weights = q.new_empty(batch, heads, rows, k.shape[2])
        mask_of = mask.expand(weights.shape)
        # (B, Nq, H, Dv) underneath, so that joining the heads afterwards copies nothing
        out = q.new_empty(batch, rows, heads, v.shape[3]).transpose(1, 2)
        with full_precision(q.device):
            for sample in range(batch):
                here = weights[sample]
                torch.baddbmm(mask_of[sample], q[sample], k[sample].mT, alpha=scale, out=here)
                torch.softmax(here, -1, out=here)
                out[sample] = here @ v[sample]
        ctx.save_for_backward(q, k, v, weights, out)
        ctx.scale, ctx.mask_shape = scale, mask.shape
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        q, k, v, weights, out = ctx.saved_tensors
        grad_q, grad_k, grad_v = _joined_like(q, k, v)
        shape = (1,) * (4 - len(ctx.mask_shape)) + tuple(ctx.mask_shape)
        grad_masks: list[Tensor] = []
        inner = (grad * out).sum(-1, keepdim=True)
        for sample in range(q.shape[0]):
            grad_v[sample] = weights[sample].mT @ grad[sample]
            grad_logits = grad[sample] @ v[sample].mT
            grad_logits.sub_(inner[sample]).mul_(weights[sample])
            if ctx.needs_input_grad[3]:
                _collect(grad_masks, _reduced(grad_logits, shape[1:]), add=shape[0] == 1)
            grad_q[sample] = (grad_logits @ k[sample]).mul_(ctx.scale)
            grad_k[sample] = (grad_logits.mT @ q[sample]).mul_(ctx.scale)
        grad_mask = torch.stack(grad_masks).reshape(ctx.mask_shape) if len(grad_masks) > 1 else None
        if len(grad_masks) == 1:
            grad_mask = grad_masks[0].reshape(ctx.mask_shape)
        return grad_q, grad_k, grad_v, grad_mask, None


def _joined_like(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Empty gradients laid out as (B, N, H, D), the order in which a projection made q, k and v."""
    return [
        torch.empty_like(x.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2) for x in (q, k, v)
    ]


def _reduced(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(H, Nq, Nk) summed over the axes where ``shape`` has length 1."""
    lengths = zip(shape, values.shape, strict=True)
    summed = [axis for axis, (mine, other) in enumerate(lengths) if mine == 1 and other > 1]
    return values.sum(summed, keepdim=True) if summed else values


def _collect(found: list[Tensor], values: Tensor, *, add: bool) -> None:
    """One more sample: added to the first, or kept beside it."""
    if add and found:
        found[0].add_(values)
    else:
        found.append(values)
