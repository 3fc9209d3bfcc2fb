"""What position does to queries and keys before their product: turn pairs or blocks of channels, or make them polar.

    rotation   pairs (c, c + D/2) turn by an angle                                     width D
    blocks     every g channels are multiplied by a matrix, (D/g of them)              width D
    polar      softplus(x_c) becomes a length, the angle is position's: [x cos, x sin]  width 2 D

Legend: B batch, H heads, N tokens, D head width, g channels of a block.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.attention.rotation import Rotation, rotate_both, rotate_plainly
from vit_rpe.position.terms import PositionTerms
from vit_rpe.precision import full_precision


def placed(q: Tensor, k: Tensor, terms: PositionTerms) -> tuple[Tensor, Tensor]:
    """Queries and keys (B, H, N, D) whose product is the logit of content, D or 2 D wide, in their own dtypes."""
    if terms.blocks_q is None and terms.polar_q is None:
        return rotate_both(q, k, terms.rotate_q, terms.rotate_k)
    return placed_plainly(q, k, terms)


def placed_plainly(q: Tensor, k: Tensor, terms: PositionTerms) -> tuple[Tensor, Tensor]:
    """:func:`placed` as it is defined, with autograd's own gradients."""
    if terms.polar_q is not None and terms.polar_k is not None:
        return as_polar(q, terms.polar_q), as_polar(k, terms.polar_k)
    if terms.blocks_q is not None and terms.blocks_k is not None:
        return turn_blocks(q, terms.blocks_q), turn_blocks(k, terms.blocks_k)
    return rotate_plainly(q, terms.rotate_q), rotate_plainly(k, terms.rotate_k)


def as_polar(x: Tensor, angles: Rotation) -> Tensor:
    """Lengths softplus(x) at the angles whose (cos, sin) are given, (B, H, N, D) to (B, H, N, 2 D)."""
    cos, sin = angles
    length = F.softplus(x.to(torch.promote_types(x.dtype, cos.dtype)))
    return torch.cat([length * cos, length * sin], dim=-1).to(x.dtype)


def turn_blocks(x: Tensor, blocks: Tensor) -> Tensor:
    """Every g channels of x (B, H, N, D) times their matrix, (H or 1, N, D/g, g, g) or with a batch axis."""
    with full_precision(x.device):
        parts = x.to(torch.promote_types(x.dtype, blocks.dtype)).unflatten(-1, blocks.shape[-3:-1])
        if blocks.ndim == 5:  # one product for all samples, which are its columns
            turned = (
                (blocks @ parts.permute(1, 2, 3, 4, 0)).permute(4, 0, 1, 2, 3).contiguous()
            )  # as fused kernels want it
        else:
            turned = (blocks @ parts[..., None])[..., 0]
    return turned.flatten(-2).to(x.dtype)
