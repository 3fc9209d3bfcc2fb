"""From patches to the tokens that the blocks take: absolute embedding, prefix tokens, patch dropout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.layers.absolute import resample_embedding, sincos_embedding
from vit_rpe.position.geometry import TokenGrid


def token_parameters(
    dim: int, class_token: bool, reg_tokens: int, pos_embed: str, rows: int, factory: Mapping[str, Any]
) -> tuple[nn.Parameter | None, nn.Parameter | None, nn.Parameter | None]:
    """Class token (1, 1, C), registers (1, reg_tokens, C) and learned embedding (1, rows, C); None where there is none.

    Raises:
        ValueError: sinusoids of a width that does not split.
    """
    if pos_embed == "sincos":
        sincos_embedding(TokenGrid((1, 1)), dim)
    return (
        nn.Parameter(torch.empty(1, 1, dim, **factory)) if class_token else None,
        nn.Parameter(torch.empty(1, reg_tokens, dim, **factory)) if reg_tokens else None,
        nn.Parameter(torch.empty(1, rows, dim, **factory)) if pos_embed == "learned" else None,
    )


def token_grid(x: Tensor, num_prefix: int) -> TokenGrid:
    """Where patches (B, height, width, C) lie."""
    return TokenGrid((x.shape[1], x.shape[2]), num_prefix=num_prefix)


def absolute_embedding(
    kind: str, learned: Tensor | None, native: Sequence[int], grid: TokenGrid, x: Tensor
) -> Tensor | None:
    """The absolute embedding of the tokens on ``grid``: (P, C) or, learned, (1, rows, C); None where there is none.

    Args:
        kind: the model's ``pos_embed``.
        learned: the embedding of the ``native`` grid, resampled for another.
        x: patches (B, P, C), for width, device and dtype.
    """
    if kind == "sincos":
        return sincos_embedding(grid, x.shape[2], device=x.device).to(x.dtype)
    if learned is None or grid.size == tuple(native):
        return learned
    return resample_embedding(learned, native, grid.size, num_prefix=learned.shape[1] - prod(native))


def embed_tokens(x: Tensor, prefix: Iterable[Tensor | None], position: Tensor | None, *, of_patches: bool) -> Tensor:
    """Patches (B, P, C) behind the prefix tokens (1, n, C each), with their position added: (B, N, C).

    Args:
        of_patches: ``position`` has rows for patches only.
    """
    if position is not None and of_patches:
        x = x + position
    tokens = [token.expand(x.shape[0], -1, -1) for token in prefix if token is not None]
    x = torch.cat([*tokens, x], dim=1) if tokens else x
    return x if position is None or of_patches else x + position


def drop_patches(layer: nn.Module, x: Tensor, num_prefix: int) -> tuple[Tensor, Tensor | None]:
    """Patch dropout: the tokens that stay, and which of the sequence they are, int64 (B, M); None: all."""
    x, keep = layer(x)
    if keep is None:
        return x, None
    front = torch.arange(num_prefix, device=x.device).expand(x.shape[0], -1)
    return x, torch.cat([front, keep + num_prefix], dim=1)
