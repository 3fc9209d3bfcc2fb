"""Rotary position with learned frequencies over all axes at once:  angle[h, t] = sum_a x_a f[a, h, t].

Rotary Position Embedding for Vision Transformer, arXiv 2403.13298, eq. 11 and 12 (RoPE-Mixed): diagonal directions can
be told apart, which the axial form cannot. n D/2 parameters a head; cos and sin are computed per head and layer.

At the start each head has n random directions at right angles to each other; a share of D/2n channel pairs turns along
each, with speeds base^(-2 n t / D). Pair (c, c + D/2) turns by angle c. Prefix tokens have angle 0.
Differs from the paper: any number of axes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.terms import PositionTerms


@once_per_forward
def axis_places(grid: TokenGrid, axis: int, device: Device, dtype: torch.dtype) -> Tensor:
    """Lattice coordinates along one axis, (S,)."""
    return grid.axis_positions(axis, device).to(dtype)


def mixed_rotation(frequencies: Tensor, grid: TokenGrid) -> tuple[Tensor, Tensor]:
    """cos and sin of all tokens' angles, prefix first: frequencies (n, H, D/2) -> (H, N, D/2), in at least float32.

    Sums of products, not matrix products: autocast leaves those alone.
    """
    frequencies = at_least_float32(frequencies)
    angles = []
    for axis, speed in enumerate(frequencies.unbind(0)):
        places = axis_places(grid, axis, frequencies.device, frequencies.dtype)
        angles.append(places[:, None] * speed[:, None, :])  # (H, S, D/2)
    learning = frequencies.requires_grad and torch.is_grad_enabled()
    cos, sin = _of_sum(angles) if learning else _joined(angles)
    if grid.num_prefix == 0:
        return cos, sin
    pad = (0, 0, grid.num_prefix, 0)
    return F.pad(cos, pad, value=1.0), F.pad(sin, pad)


def _of_sum(angles: list[Tensor]) -> tuple[Tensor, Tensor]:
    """cos and sin of a sum of angles (H, S, D/2), one an axis, for all tuples of coordinates: (H, P, D/2)."""
    total = angles[0]
    for more in angles[1:]:
        total = (total[:, :, None] + more[:, None]).flatten(1, 2)
    return total.cos(), total.sin()


def _joined(angles: list[Tensor]) -> tuple[Tensor, Tensor]:
    """:func:`_of_sum` by cos(a + b) = cos a cos b - sin a sin b: a cosine for each coordinate, not for each token.

    For inference: its gradient costs more than that of the sum.
    """
    cos, sin = angles[0].cos(), angles[0].sin()
    for more in angles[1:]:
        a, b, c, d = cos[:, :, None], sin[:, :, None], more.cos()[:, None], more.sin()[:, None]
        cos, sin = torch.addcmul(a * c, b, d, value=-1), torch.addcmul(a * d, b, c)
        cos, sin = cos.flatten(1, 2), sin.flatten(1, 2)
    return cos, sin


@register(
    "rope_mixed",
    Card(
        paper="RoPE-ViT, arXiv 2403.13298",
        adds=("rotate_q", "rotate_k"),
        extrapolation="defined for every offset",
        additive=False,
    ),
)
class RopeMixed(PositionEncoding):
    """Learned ``frequencies`` (n, H, D/2).

    Args:
        num_heads, head_dim, grid: as for every encoding.
        base: ratio of the fastest to the slowest speed at the start.

    Raises:
        ValueError: an odd ``head_dim``, or ``base`` not positive.
    """

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid, *, base: float = 10.0) -> None:
        super().__init__(num_heads, head_dim, grid)
        if head_dim % 2 != 0:
            raise ValueError(f"rope_mixed turns pairs of channels: head_dim must be even, got {head_dim}")
        if not base > 0:
            raise ValueError(f"base must be positive, got {base!r}")
        self.base = base
        self.frequencies = nn.Parameter(torch.empty(grid.ndim, num_heads, head_dim // 2))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        axes, num_heads, pairs = self.frequencies.shape
        share = -(-pairs // axes)  # channel pairs a direction, rounded up
        pair = torch.arange(pairs, device=self.frequencies.device)
        speed = self.base ** (-(pair % share).float() / share)  # (D/2,)
        random = torch.randn(num_heads, axes, axes, device=self.frequencies.device)
        directions, _ = torch.linalg.qr(random)  # (H, n, n): columns at right angles
        self.frequencies.copy_(directions[:, :, pair // share].movedim(1, 0) * speed)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        rotate_q = mixed_rotation(self.frequencies, q)
        if q == k:
            return PositionTerms(rotate_q=rotate_q, rotate_k=rotate_q)
        return PositionTerms(rotate_q=rotate_q, rotate_k=mixed_rotation(self.frequencies, k))
