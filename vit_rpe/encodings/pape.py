"""Parabolas of the offset whose shape the query decides:

    ``pape``:     logits_ij += s sum_r [ -a_r (u_r . delta)^2 + b_r (u_r . delta) ],   a = softplus(A x_i), b = B x_i
    ``pape_ri``:  logits_ij += -s a_h c_h^2 norm(delta)^2,                             a = softplus(A x_i)

PaPE, arXiv 2602.01418: parabolic position encoding; the second is its rotation-invariant form. x_i is the layer's
normed input, (C,); R parabolas a head. Squares of differences are sums of products of one number of the query and one
of the key, so that the term is a bias of rank 2 R + 1 (n + 2), ``features`` of :class:`PositionTerms`. Parameters a
layer: 2 C H R + n H R (C H + H).

Coordinates count from 1, prefix tokens stand at 0 (at the origin of all axes): a pair with one has a position. (The
public U has the columns w, h.) Differs from the paper: any number of axes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_rpe.checks import check_count
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import draw_normal, project
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.prefix import pad_tokens
from vit_rpe.position.terms import Features, PositionTerms


def token_places(grid: TokenGrid, keys: TokenGrid, dtype: torch.dtype, device: Device) -> Tensor:
    """Coordinates of all tokens, prefix at 0 and the grid from 1 on, (N, n), less the middle of the keys.

    Only differences count; smaller numbers leave smaller errors where their squares cancel.
    """
    places = pad_tokens((grid.positions(device) + 1).to(dtype), grid)
    middle = [1 + o + (size - 1) * step / 2 for o, size, step in zip(keys.origin, keys.size, keys.steps, strict=True)]
    return torch.stack([own - shift for own, shift in zip(places.unbind(1), middle, strict=True)], dim=1)


def of_heads(values: Tensor, num_heads: int) -> Tensor:
    """(B, N, H R) -> (B, H, N, R)."""
    return values.unflatten(2, (num_heads, -1)).transpose(1, 2)


class _Content(PositionEncoding):
    """What the two have in common: the queries' content, and terms from it."""

    own_name: ClassVar[str]
    """Their own parameter, not a layer's: another module may stand in a layer's place."""

    def forward(
        self,
        q: TokenGrid,
        k: TokenGrid,
        device: Device = None,
        *,
        x: Tensor | None = None,
        x_k: Tensor | None = None,
    ) -> PositionTerms:
        """The terms for queries that hold ``x`` (B, Nq, C); None = zeros, the mean of normed tokens. ``x_k`` is not
        read."""
        own: Tensor = getattr(self, self.own_name)  # replicas and pruned modules have it, but not as a parameter
        x = own.new_zeros(1, 1, self.num_heads * self.head_dim) if x is None else x
        dtype = torch.promote_types(own.dtype, torch.float32)
        at_q, at_k = (token_places(grid, k, dtype, own.device) for grid in (q, k))
        return PositionTerms(features=(self.features(x, at_q, at_k),), grids=(q, k))

    @abstractmethod
    def features(self, x: Tensor, at_q: Tensor, at_k: Tensor) -> Features:
        """A bias of low rank from the queries' content (B, Nq or 1, C) and the places (Nq, n) and (Nk, n)."""


EXTRAPOLATION = "defined for every offset"


@register(
    "pape",
    Card(
        paper="PaPE, arXiv 2602.01418",
        adds=("features",),
        extrapolation=EXTRAPOLATION,
        content=True,
    ),
)
class PaPE(_Content):
    """Parameters: ``a`` and ``b`` (C -> H R, no bias), ``directions`` (n, H, R).

    Args:
        num_heads, head_dim, grid: as for every encoding.
        parabolas: R.

    Raises:
        ValueError: ``parabolas`` below 1.
    """

    own_name = "directions"

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid, *, parabolas: int = 50) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_count("parabolas", parabolas)
        width = num_heads * head_dim
        self.parabolas = parabolas
        self.a = nn.Linear(width, num_heads * parabolas, bias=False)
        self.b = nn.Linear(width, num_heads * parabolas, bias=False)
        self.directions = nn.Parameter(torch.empty(grid.ndim, num_heads, parabolas))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        draw_normal(self.a.weight, 0.02)
        draw_normal(self.b.weight, 0.02)
        bound = self.grid.ndim**-0.5
        nn.init.uniform_(self.directions, -bound, bound)

    @torch.no_grad()
    def zero_(self) -> None:
        """Make the encoding add nothing: no direction has a length, and all of them can still learn from ``b``."""
        self.directions.zero_()

    def no_weight_decay(self) -> set[str]:
        return {"directions"}

    def features(self, x: Tensor, at_q: Tensor, at_k: Tensor) -> Features:
        directions = at_least_float32(self.directions)
        along_q, along_k = (_along(places, directions) for places in (at_q, at_k))  # (H, N, R)
        a = F.softplus(of_heads(project(self.a, x), self.num_heads))
        b = of_heads(project(self.b, x), self.num_heads)
        whole = (b * along_q - a * along_q.square()).sum(-1, keepdim=True)
        left = torch.cat([whole, 2 * a * along_q - b, -a.expand(*whole.shape[:3], -1)], dim=-1)
        right = torch.cat([torch.ones_like(along_k[..., :1]), along_k, along_k.square()], dim=-1)
        return Features(left * self.head_dim**-0.5, right[None])


@register(
    "pape_ri",
    Card(
        paper="PaPE, arXiv 2602.01418 (rotation-invariant)",
        adds=("features",),
        extrapolation=EXTRAPOLATION,
        additive=False,
        content=True,
    ),
)
class PaPERotationInvariant(_Content):
    """No options. Parameters: ``a`` (C -> H, no bias), and ``c`` (H,), drawn once and never learned."""

    own_name = "c"

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid) -> None:
        super().__init__(num_heads, head_dim, grid)
        self.a = nn.Linear(num_heads * head_dim, num_heads, bias=False)
        self.c = nn.Parameter(torch.empty(num_heads), requires_grad=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        draw_normal(self.a.weight, 0.02)
        bound = self.grid.ndim**-0.5
        nn.init.uniform_(self.c, -bound, bound)

    def no_weight_decay(self) -> set[str]:
        return {"c"}

    def features(self, x: Tensor, at_q: Tensor, at_k: Tensor) -> Features:
        scale = at_least_float32(self.c).square() * self.head_dim**-0.5
        # softplus of a contiguous tensor: compiled, its gradient has other strides than torch traced where it is not
        a = F.softplus(project(self.a, x).mT.contiguous()) * scale[:, None]  # (B, H, N)
        squares = at_q.square().sum(1, keepdim=True)
        left = a[..., None] * torch.cat([-squares, 2 * at_q, -torch.ones_like(squares)], dim=1)
        squares = at_k.square().sum(1, keepdim=True)
        right = torch.cat([torch.ones_like(squares), at_k, squares], dim=1)
        return Features(left, right[None, None])


def _along(places: Tensor, directions: Tensor) -> Tensor:
    """u_r . p of every token, (N, n) and (n, H, R) -> (H, N, R); sums of products, which autocast leaves alone."""
    parts = [own[:, None] * vector[:, None] for own, vector in zip(places.unbind(1), directions.unbind(0), strict=True)]
    return sum(parts[1:], start=parts[0])
