"""What an attention layer is given, brought into one form and checked where the layer is built."""

from __future__ import annotations

import torch
from torch import Tensor

from vit_rpe.attention import LazyTerms, check_kernel
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.encodings import PositionEncoding, terms_of_tokens
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.masks import check_radius
from vit_rpe.position.terms import PositionTerms

GridLike = TokenGrid | tuple[int, ...] | list[int] | int | None
Window = int | tuple[int, ...] | None


def as_grid(grid: GridLike) -> TokenGrid | None:
    """A size as a grid without prefix tokens; grids and None as they are.

    Raises:
        ValueError: no size.
    """
    if grid is None or isinstance(grid, TokenGrid):
        return grid
    return TokenGrid(tuple(grid) if isinstance(grid, (tuple, list)) else (grid,))


def as_window(window: int | tuple[int, ...] | list[int] | None, grid: TokenGrid | None) -> Window:
    """A radius, or one per axis as a tuple.

    Raises:
        ValueError: negative, no integer, or not one per axis of the grid where that is known.
    """
    window = tuple(window) if isinstance(window, list) else window
    if window is not None:
        check_radius(window, grid)
    return window


def check_length(name: str, length: int, grid: TokenGrid) -> None:
    """Raise ValueError unless a sequence has as many tokens as the grid it is said to lie on."""
    if type(length) is int and all(type(size) is int for size in grid.size) and length != grid.num_tokens:
        raise ValueError(
            f"{name} has {length} tokens, but its grid {grid.size} with {grid.num_prefix} prefix tokens has "
            f"{grid.num_tokens}: pass the grid the tokens lie on"
        )


@torch.no_grad()
def check_attention(
    impl: str,
    position: PositionEncoding | None,
    grid: TokenGrid | None,
    *,
    logit_clip: float | None,
    device: Device = None,
) -> str:
    """Raise ValueError unless a kernel can compute what the encoding asks for, tried on a tiny grid.

    Without an encoding the terms may still come from a caller, and only the name and ``logit_clip`` are judged.

    Returns:
        The name of the kernel as it is today.
    """
    if position is None or impl == "auto":
        return check_kernel(impl, logit_clip=logit_clip)
    tiny = TokenGrid((2,) * (1 if grid is None else grid.ndim), num_prefix=0 if grid is None else grid.num_prefix)
    return check_kernel(impl, describe_position(position, tiny, tiny, device, x=None), logit_clip=logit_clip)


def describe_position(
    position: PositionEncoding,
    q: TokenGrid,
    k: TokenGrid,
    device: Device,
    *,
    x: Tensor | None,
    x_k: Tensor | None = None,
) -> Position:
    """The terms of an encoding; not built yet where they have an entry for every pair of tokens.

    Args:
        x, x_k: what the queries and keys hold, for encodings that read it.
    """
    if position.card.content:  # for the tokens at hand, not for any window of them
        return terms_of_tokens(position, q, k, device, x=x, x_k=x_k)

    def build(q: TokenGrid, k: TokenGrid) -> PositionTerms:
        return position(q, k, device)

    return LazyTerms(q, k, build) if position.has_entry_per_pair(q, k) else build(q, k)


def scatter_tokens(x: Tensor, keep: Tensor, num_tokens: int) -> Tensor:
    """Put tokens back where patch dropout took them from, zeros elsewhere: (B, M, C) -> (B, N, C)."""
    whole = x.new_zeros(x.shape[0], num_tokens, x.shape[2])
    return whole.scatter(1, keep[..., None].expand(x.shape), x)
