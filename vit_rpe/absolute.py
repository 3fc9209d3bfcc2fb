"""Absolute position baselines: learned and sinusoidal embeddings added to the tokens, over any number of axes.

Legend: n axes, P grid tokens, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from vit_rpe.encodings._relative import resample
from vit_rpe.geometry import Device, TokenGrid

CHOICES = ("none", "learned", "sincos")


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
