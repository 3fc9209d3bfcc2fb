"""Sinusoids of the offset, projected, with learned biases in place of absolute queries:

    logits_ij = s [ (q_i + u).k_j + (q_i + v).W_R r(delta_ij) ]

Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, arXiv 1901.02860, section 3.3. r(delta) has
width C = H D and the halves [sin, cos] of delta 10000^(-2t/C), t = 0 ... C/2 - 1. Cost: W_R on the Sq + Sk - 1 offsets
of an axis that occur, not on pairs, and one product of every query with them; nothing is shifted or cut, so that full
(not causal) attention and different query and key lengths are right.

Differs from the paper: on a grid with n axes each axis has an equal share C/n of the width of r, and W_R r is the sum
over axes. A pair with a prefix token has no position: q.k alone, without u and v. The term s v.W_R r is a bias, and
holds the softmax scale s = D^-0.5.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import distinct_offsets, project
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.terms import AxisBias, PositionTerms, RelativeVectors


@once_per_forward
def sinusoid(offsets: Tensor, width: int) -> Tensor:
    """[sin, cos] of each offset at width/2 wavelengths, 2 pi to 20000 pi: (R,) -> float32 (R, width)."""
    steps = torch.arange(width // 2, device=offsets.device, dtype=torch.float32) * 2 / width
    angles = offsets.float()[:, None] * 10000.0**-steps
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


@register(
    "transformer_xl",
    Card(
        paper="Transformer-XL, arXiv 1901.02860",
        adds=("axis_bias", "on_query", "on_key"),
        extrapolation="defined for every offset",
    ),
)
class TransformerXL(PositionEncoding):
    """No options. Parameters: ``proj`` (W_R, (C, C) without bias), ``u`` and ``v`` (H, D).

    Raises:
        ValueError: C = num_heads * head_dim does not split into sine and cosine for every axis.
    """

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid) -> None:
        super().__init__(num_heads, head_dim, grid)
        width = num_heads * head_dim
        if width % (2 * grid.ndim) != 0:
            raise ValueError(
                f"transformer_xl needs a sine and a cosine for each of {grid.ndim} axes: num_heads * head_dim must "
                f"be divisible by {2 * grid.ndim}, got {num_heads} * {head_dim} = {width}"
            )
        self.proj = nn.Linear(width, width, bias=False)
        self.u = nn.Parameter(torch.empty(num_heads, head_dim))
        self.v = nn.Parameter(torch.empty(num_heads, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)

    def no_weight_decay(self) -> set[str]:
        return {"u", "v"}

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        share = self.num_heads * self.head_dim // q.ndim
        u, v = at_least_float32(self.u)[:, None], at_least_float32(self.v)[:, None]  # (H, 1, D)
        offsets, indices = zip(*(distinct_offsets(q, k, axis, u.device) for axis in range(q.ndim)), strict=True)
        counts = [own.shape[0] for own in offsets]
        waves = [sinusoid(own, share) for own in offsets]
        # each axis's part of r with zeros for the others: what W_R makes of it alone
        alone = [F.pad(own, (axis * share, (q.ndim - 1 - axis) * share)) for axis, own in enumerate(waves)]
        vectors = project(self.proj, torch.cat(alone))  # (R of all axes, H D)
        table = vectors.unflatten(1, (self.num_heads, self.head_dim)).transpose(0, 1)
        bias = (v * table).sum(-1) * self.head_dim**-0.5  # (H, R of all axes)
        on_query, biases = [], []
        parts = zip(table.split(counts, dim=1), bias.split(counts, dim=1), indices, strict=True)
        for axis, (rows, scalars, index) in enumerate(parts):
            on_query.append(RelativeVectors(rows, index, axis))
            biases.append(AxisBias(scalars.index_select(1, index.flatten()).unflatten(1, index.shape), axis))
        everywhere = torch.zeros_like(indices[-1])
        return PositionTerms(
            axis_bias=tuple(biases),
            on_query=tuple(on_query),
            on_key=(RelativeVectors(u, everywhere, q.ndim - 1),),
            grids=(q, k),
        )
