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
    fixed = not (cos.requires_grad or sin.requires_grad)
    if fixed and wide.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return _Turn.apply(wide, cos, sin).to(x.dtype)
    return turn(wide, cos, sin).to(x.dtype)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The rotation itself, in the dtype of ``x``."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)], dim=-1)


class _Turn(torch.autograd.Function):
    """``turn`` by fixed angles: nothing of ``x`` is kept, and backward is one rotation the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        cos, sin = ctx.saved_tensors
        return rotate(grad, (cos, -sin)), None, None
