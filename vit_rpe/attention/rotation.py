"""Rotary position: turning the channel pairs of queries and keys.

Legend: B batch, H heads, N tokens, D head width; a rotation is (cos, sin), each (N, D/2), (H, N, D/2) or with a batch
axis.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Rotation = tuple[Tensor, Tensor]


def rotate(x: Tensor, rotation: Rotation | None) -> Tensor:
    """Turn the pairs (c, c + D/2) of x (B, H, N, D) by the angles whose (cos, sin) are given; same shape and dtype."""
    if rotation is None:
        return x
    cos, sin = rotation
    wide = x.to(torch.promote_types(x.dtype, cos.dtype))
    if torch.compiler.is_compiling():
        return rotate_plainly(x, rotation)
    if torch.is_grad_enabled() and (wide.requires_grad or cos.requires_grad):
        return _Turn.apply(wide, cos, sin).to(x.dtype)
    return _turn(wide, cos, sin).to(x.dtype)


def rotate_plainly(x: Tensor, rotation: Rotation | None) -> Tensor:
    """:func:`rotate` as it is defined, with autograd's own gradients."""
    if rotation is None:
        return x
    cos, sin = rotation
    a, b = x.to(torch.promote_types(x.dtype, cos.dtype)).chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[b, a] * [-sin, sin] + [a, b] * [cos, cos], in one buffer: two to three times faster than the plain formula."""
    a, b = x.chunk(2, dim=-1)
    out = torch.cat([b, a], dim=-1)
    return out.mul_(torch.cat([-sin, sin], dim=-1)).addcmul_(x, torch.cat([cos, cos], dim=-1))


class _Turn(torch.autograd.Function):
    """The rotation with its gradients: backward is one rotation the other way; x is kept for learned angles only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        learned = cos.requires_grad or sin.requires_grad
        ctx.save_for_backward(cos, sin, x if learned else None)
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        cos, sin, x = ctx.saved_tensors
        grad_x = rotate(grad, (cos, -sin)) if ctx.needs_input_grad[0] else None
        if x is None:
            return grad_x, None, None
        (a, b), (grad_a, grad_b) = x.chunk(2, dim=-1), grad.chunk(2, dim=-1)
        grad_cos = (grad_a * a + grad_b * b).sum_to_size(cos.shape)
        grad_sin = (grad_b * a - grad_a * b).sum_to_size(sin.shape)
        return grad_x, grad_cos, grad_sin
