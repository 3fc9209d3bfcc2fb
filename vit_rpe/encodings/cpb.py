"""A bias computed by a small network from the logarithm of the offset (continuous position bias).

    ``swinv2``:  x_a = 8 delta_a / (size_a - 1),  y = sign(x) log2(1 + |x|) / log2(8),  bias = 16 sigmoid(MLP(y))
    ``log``:     y = sign(delta) ln(1 + |delta|),  bias = MLP(y)

Swin Transformer V2: Scaling Up Capacity and Resolution, arXiv 2111.09883, section 3.3 (eq. 4 for the log coordinates;
the factors 8 and 16 are those of its released code). ``log`` is the plainer form of timm's relative position layer.

The network sees each distinct offset once, prod(Sq_a + Sk_a - 1) of them, not each pair; pairs look their value up.
``size`` is that of the grid the network was trained on, ``native``: queries and keys may lie on another one, and the
encoding may be resized to another one, and an offset keeps its value. An axis of one token has coordinate 0.

``swinv2`` starts near 16 sigmoid(0) = 8 for every pair of patches. Swin V2 has no class token, so that there this is a
constant, which adds nothing to a softmax. A pair with a prefix token has 0 with ``prefix="zero"``: a patch then starts
with e^8 times the weight on patches. ``prefix="learned"`` starts these pairs at 8 too, so that all start alike.
"""

from __future__ import annotations

from math import log2
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, all_but_matrices
from vit_rpe.encodings._native import remember_native
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import (
    PREFIX_CHOICES,
    is_read,
    occurring_offsets,
    prefix_entries,
    prefix_parameter,
    project_columns,
    zero_layer,
)
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.terms import PositionTerms
from vit_rpe.precision import placement_of

MODES = ("swinv2", "log")


def log_coordinate(delta: Tensor, mode: str, size: int) -> Tensor:
    """The network's input for offsets along one axis of ``size`` native tokens, same shape as ``delta`` (float)."""
    if mode == "log":
        return delta.sign() * torch.log1p(delta.abs())
    x = 8.0 * delta / (size - 1) if size > 1 else torch.zeros_like(delta)
    return x.sign() * torch.log2(1.0 + x.abs()) / log2(8)


@once_per_forward
def coordinates(
    q: TokenGrid, k: TokenGrid, axis: int, mode: str, size: int, device: Device, dtype: torch.dtype
) -> Tensor:
    """:func:`log_coordinate` of every offset that occurs along one axis, (R,)."""
    return log_coordinate(occurring_offsets(q, k, axis, device).to(dtype), mode, size)


@once_per_forward
def tuples(
    q: TokenGrid, k: TokenGrid, mode: str, native: tuple[int, ...], device: Device, dtype: torch.dtype
) -> Tensor:
    """The network's input for every tuple of offsets that occur, (n, R_1, ..., R_n)."""
    sides = [coordinates(q, k, axis, mode, size, device, dtype) for axis, size in enumerate(native)]
    return torch.stack(torch.meshgrid(*sides, indexing="ij"))


@register(
    "cpb",
    Card(
        paper="Swin Transformer V2, arXiv 2111.09883",
        adds=("offset_bias", "prefix_bias"),
        extrapolation="defined for every offset; swinv2 coordinates stay relative to the native grid",
    ),
)
class ContinuousBias(PositionEncoding):
    """A network from log offsets to one scalar a head.

    Parameters are ``fc1`` (n -> hidden), ``fc2`` (hidden -> H; without bias in mode ``swinv2``), and ``prefix_bias``
    (H, 3) where learned.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        mode: ``"swinv2"`` or ``"log"``, see above.
        hidden: width of the hidden layer.
        native: ``size`` of mode ``swinv2``, one entry per axis; None = that of the native grid. Resizing and loading
            ``state_dict``s keep it, see :func:`vit_rpe.encodings._native.remember_native`.
        prefix: ``"zero"``, or ``"learned"`` for a scalar for prefix->patch, patch->prefix and prefix->prefix, which is
            the better one beside prefix tokens in mode ``swinv2``, see above.

    Raises:
        ValueError: an unknown ``mode`` or ``prefix``, ``hidden`` below 1, a bad ``native``.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        mode: str = "swinv2",
        hidden: int = 512,
        native: tuple[int, ...] | None = None,
        prefix: str = "zero",
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("mode", mode, MODES)
        check_choice("prefix", prefix, PREFIX_CHOICES)
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        if native is not None and mode != "swinv2":
            raise ValueError(f"native={native!r} is the size in the coordinates of mode='swinv2', and mode is {mode!r}")
        self.native = grid.size
        if mode == "swinv2":
            remember_native(self, native)
        self.mode = mode
        self.fc1 = nn.Linear(grid.ndim, hidden)
        self.fc2 = nn.Linear(hidden, num_heads, bias=mode == "log")
        self.prefix_bias = prefix_parameter(prefix, num_heads, grid)
        self.reset_parameters()

    def remembered(self) -> dict[str, Any]:
        return {"native": self.native} if self.mode == "swinv2" else {}

    @property
    def constant(self) -> float:
        """The bias where the network gives 0."""
        return 8.0 if self.mode == "swinv2" else 0.0

    def reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("weight"):
                nn.init.trunc_normal_(parameter, std=0.02)
            elif name == "prefix_bias":
                nn.init.constant_(parameter, self.constant)
            else:
                nn.init.zeros_(parameter)

    @torch.no_grad()
    def zero_(self) -> None:
        """Make the encoding add nothing: the last layer is zeroed, which leaves ``swinv2`` at the constant 8.

        A constant adds nothing to a softmax, provided that pairs with a prefix token have it too.

        Raises:
            ValueError: mode ``swinv2`` on a grid with prefix tokens and no learned prefix values to hold the constant.
        """
        if self.mode == "swinv2" and self.grid.num_prefix > 0 and self.prefix_bias is None:
            raise ValueError(
                "cpb in mode 'swinv2' cannot add nothing beside prefix tokens: it adds 8 to patches alike "
                "and 0 to them; use prefix='learned' or mode='log'"
            )
        zero_layer(self.fc2)
        if self.prefix_bias is not None:
            self.prefix_bias.fill_(self.constant)

    def no_weight_decay(self) -> set[str]:
        return all_but_matrices(self)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        device, dtype = placement_of(self, device)
        dtype = torch.promote_types(dtype, torch.float32)
        points = tuples(q, k, self.mode, self.native, device, dtype)  # (n, R_1, ..., R_n)
        hidden = project_columns(self.fc1, points.flatten(1))
        hidden = hidden.relu_() if is_read(self.fc1) else hidden.relu()
        table = project_columns(self.fc2, hidden).unflatten(1, points.shape[1:])  # (H, R_1, ..., R_n)
        if self.mode == "swinv2":
            table = 16.0 * table.sigmoid()
        prefix = prefix_entries(self.prefix_bias, q, k)
        return PositionTerms(offset_bias=(table,), prefix_bias=prefix, grids=(q, k))
