"""A bias from a network of the distance, relative to how far the query could look.

    logits_ij += MLP( psi(d_ij) / (psi(max(L, d_max(i))) + 1e-6) ),     psi(x) = ln(|c x| + 1)

Functional Interpolation for Relative Positions Improves Long Context Transformers, arXiv 2310.04418, eq. 5 and 18.
d is the Euclidean norm of the offset; d_max(i) the largest distance between query i and any place of the key grid's
lattice, or the query's position where ``causal``. MLP: 1 -> 32 -> H with one relu. Costs 32 (H + 1) products
a pair, or an offset where L is the larger for all queries.

Differs from the paper: symmetric by default, any number of axes; c and L enter by their absolute value, as in the
released code; L starts at the largest distance of the native grid and is learned directly.
"""

from __future__ import annotations

from functools import reduce
from math import hypot
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, all_but_matrices
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import occurring_offsets, project, zero_layer
from vit_rpe.position.geometry import Device, TokenGrid, are_constants, axis_offsets, common_lattice, expand_axis
from vit_rpe.position.geometry_cache import is_plain
from vit_rpe.position.terms import PositionTerms, pad_prefix

HIDDEN = 32
EPSILON = 1e-6


@register(
    "fire",
    Card(
        paper="FIRE, arXiv 2310.04418",
        adds=("bias", "offset_bias"),
        extrapolation="interpolates: distances are relative to the lattice, or to L where that is larger",
        per_pair=True,
    ),
)
class Fire(PositionEncoding):
    """Parameters ``fc1`` (1 -> 32), ``fc2`` (32 -> H), ``c`` and ``L``, both (1,).

    Args:
        num_heads, head_dim, grid: as for every encoding.
        causal: divide by the query's position instead of its largest distance; 1-D only. Masks nothing.

    Raises:
        ValueError: ``causal`` with more than one axis.
    """

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid, *, causal: bool = False) -> None:
        super().__init__(num_heads, head_dim, grid)
        if causal and grid.ndim != 1:
            raise ValueError(f"fire with causal=True is defined in 1-D only, got the grid {grid.size}")
        self.causal = causal
        self.fc1 = nn.Linear(1, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, num_heads)
        self.c = nn.Parameter(torch.empty(1))
        self.L = nn.Parameter(torch.empty(1))
        self.register_load_state_dict_pre_hook(_lengthen_scalars)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.fc1.reset_parameters()
        nn.init.trunc_normal_(self.fc2.weight, std=0.02)
        nn.init.zeros_(self.fc2.bias)
        self.c.fill_(0.1)
        self.L.fill_(max(1.0, hypot(*(size - 1 for size in self.grid.size))))

    @torch.no_grad()
    def zero_(self) -> None:
        """Make the encoding add nothing: the last layer is zeroed, and all of it can still learn."""
        zero_layer(self.fc2)

    def no_weight_decay(self) -> set[str]:
        return all_but_matrices(self)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        dtype = torch.promote_types(self.c.dtype, torch.float32)
        threshold = self.L.to(dtype).abs()
        if not self.has_entry_per_pair(q, k):
            axes = [occurring_offsets(q, k, axis, self.c.device).to(dtype).square() for axis in range(q.ndim)]
            table = self._bias(reduce(lambda total, squares: total[..., None] + squares, axes).sqrt(), threshold)
            return PositionTerms(offset_bias=(table,), grids=(q, k))
        squares = torch.zeros((), dtype=dtype, device=self.c.device)
        for axis in range(q.ndim):
            delta = axis_offsets(q, k, axis, self.c.device).to(dtype)
            squares = squares + expand_axis(delta.square(), axis, q, k)
        distance = squares.reshape(q.num_patches, k.num_patches).sqrt()
        farthest = torch.maximum(threshold, self._farthest(q, k, dtype, self.c.device))[:, None]  # (Pq, 1)
        return PositionTerms(bias=pad_prefix(self._bias(distance, farthest), q, k))

    def has_entry_per_pair(self, q: TokenGrid, k: TokenGrid) -> bool:
        """Not where L is larger than any distance, as at the start on the native grid: the bias is one of offsets."""
        if self.L.device.type != "cpu" or not is_plain() or not are_constants(*q.size, *k.size):
            return True  # the value of L is not looked at
        dtype = torch.promote_types(self.L.dtype, torch.float32)
        farthest, threshold = self._farthest(q, k, dtype, self.L.device), self.L.to(dtype).abs()
        return bool((farthest > threshold * (1 + EPSILON)).any())  # both are rounded roots

    def _bias(self, distance: Tensor, farthest: Tensor) -> Tensor:
        """The network's values for distances relative to ``farthest``: (...) -> (H, ...)."""
        c = self.c.to(distance.dtype)
        ratio = torch.log1p((c * distance).abs()) / (torch.log1p((c * farthest).abs()) + EPSILON)
        hidden = project(self.fc1, ratio[..., None]).relu()
        return project(self.fc2, hidden).movedim(-1, 0)

    def _farthest(self, q: TokenGrid, k: TokenGrid, dtype: torch.dtype, device: torch.device) -> Tensor:
        """d_max of every grid query, (Pq,)."""
        positions = q.positions(device).to(dtype)
        if self.causal:
            return positions[:, 0]
        squares = torch.zeros((), dtype=dtype, device=device)
        # pooled keys without an extent do not say where their lattice ends
        lattice = k.lattice if k.stride is None or k.extent is not None else common_lattice(q, k)
        for place, size in zip(positions.unbind(1), lattice, strict=True):
            squares = squares + torch.maximum(place.abs(), (size - 1 - place).abs()).square()
        return squares.sqrt()


def _lengthen_scalars(module: nn.Module, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
    """Files written before ``c`` and ``L`` had a dimension hold them without one."""
    for name in ("c", "L"):
        value = state_dict.get(prefix + name)
        if value is not None and value.ndim == 0:
            state_dict[prefix + name] = value[None]
