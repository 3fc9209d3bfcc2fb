"""Absolute position baselines: learned and sinusoidal embeddings added to the tokens, over any number of axes.

The third, conditional position, is a layer: :mod:`vit_rpe.layers.conditional`.

Legend: n axes, P grid tokens, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from vit_rpe.checks import checked, unknown_name
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.resampling import resample

CHOICES = ("none", "learned", "sincos", "conditional")


def check_pos_embed(name: str, *, causal: bool) -> None:
    """Raise ValueError unless ``name`` is one of :data:`CHOICES` and goes with the order tokens are seen in."""
    if name not in CHOICES:
        raise unknown_name("pos_embed", name, CHOICES)
    if name == "conditional" and causal:
        raise ValueError("pos_embed='conditional' tells every token of those behind it: it needs causal=False")


def sincos_embedding(grid: TokenGrid, dim: int, *, base: float = 10000.0, device: Device = None) -> Tensor:
    """Fixed sinusoids (Attention Is All You Need, arXiv 1706.03762, section 3.5), an equal share of channels per axis.

    Per axis the first half holds sin(x_a base^(-2 t n / C)), the second half cos.

    Returns:
        float32 (P, C), without prefix tokens.

    Raises:
        ValueError: ``dim`` does not split into sin and cos for every axis.
    """
    if dim % (2 * grid.ndim) != 0:
        raise ValueError(
            f"sincos splits the width into sin and cos for {grid.ndim} axes: it must be divisible by "
            f"{2 * grid.ndim}, got {dim}"
        )
    share = dim // (2 * grid.ndim)
    frequencies = base ** (-torch.arange(share, device=device, dtype=torch.float32) / share)
    angles = grid.positions(device).float()[:, :, None] * frequencies  # (P, n, C/2n)
    return torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1)


def resample_embedding(
    embedding: Tensor, source: Sequence[int], target: Sequence[int], *, num_prefix: int = 0
) -> Tensor:
    """A learned embedding of a ``source`` grid for a ``target`` grid: bicubic with antialiasing along every axis, as in
    timm; prefix rows untouched.

    Args:
        embedding: (1, num_prefix + prod(source), C).

    Raises:
        ValueError: the embedding does not have that many rows.
    """
    if embedding.shape[1] != num_prefix + prod(source):
        raise ValueError(
            f"pos_embed has {embedding.shape[1]} rows, a grid of {tuple(source)} with {num_prefix} prefix rows needs "
            f"{num_prefix + prod(source)}"
        )
    if tuple(source) == tuple(target):
        return embedding
    prefix, rest = embedding[:, :num_prefix], embedding[:, num_prefix:]
    rest = rest.reshape(1, *source, -1)
    rest = resample(rest, range(1, 1 + len(source)), list(target), antialias=True)
    return torch.cat([prefix, rest.reshape(1, prod(target), -1)], dim=1)


class LearnedEmbedding(nn.Module):
    """A learned vector for every place of a grid, over any number of axes: what a model adds to its tokens.

    Args:
        grid: the native grid; a prefix token has a vector of its own.
        dim: C.
        init_std: standard deviation of the initial values (truncated normal).

    State is the one parameter ``weight`` (1, num_prefix + P, C).

    Raises:
        ValueError: ``dim`` is no integer of at least 1.
    """

    @checked(least={"dim": 1})
    def __init__(
        self,
        grid: TokenGrid,
        dim: int,
        *,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.grid = grid
        self.init_std = init_std
        self.weight = nn.Parameter(torch.empty(1, grid.num_tokens, dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.weight, std=self.init_std)

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay must leave alone: the vectors."""
        return {"weight"}

    def forward(self, grid: TokenGrid | None = None) -> Tensor:
        """The embedding of the tokens of ``grid`` (default: the native one), resampled where its size differs.

        Returns:
            (1, num_prefix + P, C).

        Raises:
            ValueError: a grid of other axes, with other prefix tokens, or that is a part of a lattice.
        """
        if grid is None or grid == self.grid:
            return self.weight
        if grid.ndim != self.grid.ndim or grid.num_prefix != self.grid.num_prefix or grid.lattice != grid.size:
            raise ValueError(
                f"the embedding of {self.grid} holds for whole grids of {self.grid.ndim} axes with "
                f"{self.grid.num_prefix} prefix tokens, got {grid}"
            )
        return resample_embedding(self.weight, self.grid.size, grid.size, num_prefix=grid.num_prefix)
