"""A quadratic of the offset, so that a head's attention is a Gaussian around some place beside the query:

    logits_ij += v_h . (norm(delta)^2, delta_1, ..., delta_n)

ConViT: Improving Vision Transformers with Soft Convolutional Inductive Biases, arXiv 2103.10697, eq. 6; On the
Relationship between Self-Attention and Convolutional Layers, arXiv 1911.03584. (n + 1) H parameters a layer; a sum over
axes, and one addition a pair.

With v = -strength (1, 2 c_1, ..., 2 c_n) a head looks c away (key minus query): -strength norm(delta + c)^2 and a
constant. At the start the first k^n heads look at the places of a grid k wide around the query, the first axis fastest.
Differs from ConViT, which mixes two softmaxes: this is the additive form. Its files have the columns w, h, square, key
minus query, and a bias without effect.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import axis_sum, occurring_offsets
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms


def centres(num_heads: int, axes: int) -> list[tuple[float, ...]]:
    """Offsets (key minus query) at which the first k^n heads look: a centred grid, k wide, the first axis fastest."""
    width = 1
    while (width + 1) ** axes <= num_heads:
        width += 1
    first = -(width - 1) / 2
    return [tuple(first + head // width**axis % width for axis in range(axes)) for head in range(width**axes)]


@register(
    "gaussian",
    Card(
        paper="ConViT, arXiv 2103.10697; Self-Attention and Convolutional Layers, arXiv 1911.03584",
        adds=("offset_bias",),
        extrapolation="defined for every offset",
    ),
)
class Gaussian(PositionEncoding):
    """Parameter ``v`` (H, n + 1): the factor of the squared distance, then those of the offsets.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        strength: how narrow heads look at the start.

    Raises:
        ValueError: ``strength`` is not positive.
    """

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid, *, strength: float = 1.0) -> None:
        super().__init__(num_heads, head_dim, grid)
        if not strength > 0:
            raise ValueError(f"strength must be positive, got {strength!r}")
        self.strength = strength
        self.v = nn.Parameter(torch.empty(num_heads, grid.ndim + 1))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.v.zero_()
        for head, centre in enumerate(centres(self.num_heads, self.grid.ndim)):
            self.v[head] = torch.tensor([-self.strength] + [-2 * self.strength * place for place in centre])

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        v = at_least_float32(self.v)
        return PositionTerms(offset_bias=(axis_sum([_along(v, q, k, axis) for axis in range(q.ndim)]),), grids=(q, k))


def _along(v: Tensor, q: TokenGrid, k: TokenGrid, axis: int) -> Tensor:
    """One axis's share, (H, R_a)."""
    delta = occurring_offsets(q, k, axis, v.device).to(v.dtype)
    return v[:, :1] * delta.square() + v[:, 1 + axis, None] * delta
