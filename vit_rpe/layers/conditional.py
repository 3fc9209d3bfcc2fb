"""Conditional position: a depthwise convolution lets every token know its neighbours, and the border of the image.

    x_i += bias + sum over the 3^n neighbours j of i of  weight[j - i] x_j,   nothing beyond the border

Conditional Positional Encodings for Vision Transformers, arXiv 2102.10882 (CPVT, "PEG"): after the first block. The
zeros beyond the border tell where a token is; any size of grid will do, and nothing is resampled.

Legend: n axes, B batch, C channels, P grid tokens, N with prefix, M tokens that are left.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_rpe.layers.options import scatter_tokens
from vit_rpe.position.geometry import Device, TokenGrid

torch.fx.wrap("add_neighbours")  # grids are no graph of tensors: any FX tracer takes it as one step


class ConditionalPosition(nn.Module):
    """Adds a 3 x 3 depthwise convolution of the grid tokens to them; prefix tokens pass.

    Args:
        dim: C.
        axes: n; the convolution has that rank, 3^n weights a channel.
    """

    def __init__(self, dim: int, axes: int = 2, *, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, 1, *(3,) * axes, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As a convolution of torch's: uniform, within one over the root of the number of neighbours."""
        bound = self.weight[0].numel() ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay must leave alone: all, as CPVT's models have it."""
        return {"weight", "bias"}

    def forward(
        self, x: Tensor, grid: TokenGrid, keep: Tensor | None = None, key_visible: Tensor | None = None
    ) -> Tensor:
        """Tokens (B, N, C) to tokens (B, N, C).

        Args:
            grid: where they lie.
            keep: int64 (B, M), which tokens of the grid ``x`` (B, M, C) holds (patch dropout); the others count as 0,
                like those beyond the border.
            key_visible: bool (B, N), False for padding, which counts as 0 too.
        """
        return add_neighbours(x, self.weight, self.bias, grid, keep, key_visible)


def add_neighbours(
    x: Tensor, weight: Tensor, bias: Tensor, grid: TokenGrid, keep: Tensor | None, key_visible: Tensor | None
) -> Tensor:
    """:class:`ConditionalPosition` with its parameters ``weight`` (C, 1, 3, ..., 3) and ``bias`` (C,)."""
    whole = x if keep is None else scatter_tokens(x, keep, grid.num_tokens)
    if key_visible is not None:
        whole = whole * key_visible[..., None]
    image = whole[:, grid.num_prefix :].mT.unflatten(2, grid.size)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[grid.ndim - 1]
    found = convolve(image, weight, bias, padding=1, groups=image.shape[1]).flatten(2).mT
    found = F.pad(found, (0, 0, grid.num_prefix, 0))
    return x + (found if keep is None else found.gather(1, keep[..., None].expand(-1, -1, x.shape[2])))
