"""Tensors computed from attention maps: rollout, distance, and values by offset.

Legend: B batch, H heads, N/Nq/Nk tokens with prefix, n axes.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from vit_rpe.checks import check_within
from vit_rpe.position.geometry import TokenGrid, offsets
from vit_rpe.position.offset_tables import offset_range


def rollout(maps: Iterable[Tensor], *, residual: float = 0.5) -> Tensor:
    """Attention rollout: how much of every input token arrives at every output token.

    Quantifying Attention Flow in Transformers, arXiv 2005.00928: the product over layers of the mean over heads,
    mixed with the identity for the residual connection.

    Args:
        maps: one (B, H, N, N) per layer, first layer first; may be a generator, so that one is alive at a time.
        residual: share of the identity.

    Returns:
        (B, N, N), rows sum to 1.

    Raises:
        ValueError: no map, maps between different tokens, or no share.
    """
    check_within("residual", residual, 0, 1)
    joint: Tensor | None = None
    for weights in maps:
        check_axes(weights, "rollout", "(B, H, N, N)")
        if weights.shape[-1] != weights.shape[-2] or (joint is not None and joint.shape[-1] != weights.shape[-1]):
            raise ValueError(f"rollout needs self-attention over the same tokens, got a map {tuple(weights.shape)}")
        eye = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        mixed = (1 - residual) * weights.mean(dim=1) + residual * eye
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        joint = mixed if joint is None else mixed @ joint
    if joint is None:
        raise ValueError("rollout needs at least one map")
    return joint


def mean_distance(weights: Tensor, q: TokenGrid, k: TokenGrid) -> Tensor:
    """Mean attention distance: the distance between query and key in tokens, weighted by attention.

    An Image is Worth 16x16 Words, arXiv 2010.11929, figure 7 (there in pixels). Grid tokens only: attention to prefix
    tokens is left out and the rest renormalised; queries that see no grid token do not count.

    Args:
        weights: (B, H, Nq, Nk).

    Returns:
        (B, H).
    """
    check_axes(weights, "mean_distance", "(B, H, Nq, Nk)", q, k)
    weights = weights[:, :, q.num_prefix :, k.num_prefix :]
    distance = offsets(q, k, weights.device).to(weights.dtype).norm(dim=-1)
    total = weights.sum(dim=-1)
    each = (weights * distance).sum(dim=-1) / total.clamp_min(torch.finfo(total.dtype).tiny)
    return each.sum(dim=-1) / (total > 0).sum(dim=-1).clamp_min(1)


def by_offset(values: Tensor, q: TokenGrid, k: TokenGrid) -> Tensor:
    """Values of pairs by **key minus query**: what a query in the centre of the picture has around it.

    Args:
        values: (H, Nq, Nk); prefix pairs are left out, and so are pairs that are not finite.

    Returns:
        (H, S_1, ..., S_n), the mean over all pairs with that offset, NaN where there is none. With equal grids of
        size s an axis has 2 s - 1 entries and the query is at s - 1; see :func:`picture_range`.
    """
    check_axes(values, "by_offset", "(H, Nq, Nk)", q, k)
    total = OffsetMean(q, k, values.shape[0], values.device)
    total.add(values, q)
    return total.mean().to(values.dtype)


class OffsetMean:
    """The mean over pairs with one offset, of values that come part by part."""

    def __init__(self, q: TokenGrid, k: TokenGrid, heads: int, device: torch.device) -> None:
        self.k = k
        self.low, self.sizes = picture_range(q, k)
        self.total = torch.zeros(heads, torch.Size(self.sizes).numel(), dtype=torch.float64, device=device)
        self.count = torch.zeros_like(self.total)

    def add(self, values: Tensor, q: TokenGrid) -> None:
        """Values (H, Nq, Nk) of queries on ``q``, a part of the query grid."""
        shifted = -offsets(q, self.k, values.device) - torch.tensor(self.low, device=values.device)
        index = torch.zeros(shifted.shape[:-1], dtype=torch.int64, device=values.device)
        for axis, size in enumerate(self.sizes):
            index = index * size + shifted[..., axis]
        flat = values[:, q.num_prefix :, self.k.num_prefix :].flatten(1).to(torch.float64)
        finite = flat.isfinite()
        index = index.flatten().expand(flat.shape)
        self.total.scatter_add_(1, index, flat.masked_fill(~finite, 0.0))
        self.count.scatter_add_(1, index, finite.to(flat.dtype))

    def mean(self) -> Tensor:
        """(H, S_1, ..., S_n) float64."""
        return (self.total / self.count).reshape(-1, *self.sizes)


def picture_range(q: TokenGrid, k: TokenGrid) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The lowest key minus query per axis, and how many there are from it to the highest: the frame of
    :func:`by_offset`."""
    check_grids("picture_range", q, k)
    ranges = [offset_range(k, q, axis) for axis in range(q.ndim)]  # exchanged: key minus query
    return tuple(low for low, _ in ranges), tuple(size for _, size in ranges)


def check_grids(caller: str, q: object, k: object) -> None:
    """The grids of queries and keys are grids, of the same axes.

    Raises:
        ValueError: they are not.
    """
    for grid in (q, k):
        if not isinstance(grid, TokenGrid):
            raise ValueError(f"{caller} needs grids such as TokenGrid((8, 12)), got {grid!r}")
    if q.ndim != k.ndim:  # type: ignore[attr-defined]
        raise ValueError(f"{caller} needs grids of the same axes, got {q!r} and {k!r}")


def check_axes(
    values: Tensor, caller: str, expected: str, q: TokenGrid | None = None, k: TokenGrid | None = None
) -> None:
    """Values of pairs have the axes of ``expected``, such as "(B, H, Nq, Nk)", and the tokens of the grids.

    Raises:
        ValueError: they have not; both shapes are named.
    """
    if not isinstance(values, Tensor):
        raise ValueError(f"{caller} needs values {expected} as a tensor, got {type(values).__name__}")
    if (q, k) != (None, None):
        check_grids(caller, q, k)
    shape = tuple(values.shape)
    if len(shape) != expected.count(",") + 1:
        raise ValueError(f"{caller} needs values {expected}, got the shape {shape}")
    if q is not None and k is not None and shape[-2:] != (q.num_tokens, k.num_tokens):
        tokens = f"Nq = {q.num_tokens} and Nk = {k.num_tokens}"
        raise ValueError(f"{caller} needs values {expected} with {tokens}, got the shape {shape}")
