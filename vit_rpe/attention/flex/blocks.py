"""Which blocks of queries and keys see something, which see all, and a function that tells it of one pair.

A mask by geometry is told from coordinates: no mask of all pairs exists.

Legend: B batch, H heads, Nq/Nk query/key tokens with prefix, bq/bk blocks of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, and_masks

from vit_rpe.attention.flex.scores import OfPair, looked_up, numbered
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.masks import GeometricMask

BLOCK = 128
"""Queries and keys of a block, which is skipped or computed as one."""
FAR = 2**30


class Sight(NamedTuple):
    """What queries see: by pairs, and by blocks.

    Attributes:
        pair: whether a query sees a key.
        some: bool (B or 1, H or 1, bq or 1, bk or 1), False only where no pair of the block sees.
        every: the same, True only where all pairs of the block see.
    """

    pair: OfPair
    some: Tensor
    every: Tensor


def block_mask(sights: Sequence[Sight], queries: int, keys: int) -> BlockMask:
    """What is seen under all of ``sights``, as FlexAttention takes it."""
    some, every = sights[0].some, sights[0].every
    for sight in sights[1:]:
        some, every = some & sight.some, every & sight.every
    every = every & _is_whole(queries, some.device)[:, None] & _is_whole(keys, some.device)
    return BlockMask.from_kv_blocks(
        *_listed(some & ~every),
        *_listed(every),
        BLOCK_SIZE=BLOCK,
        mask_mod=and_masks(*(sight.pair for sight in sights)),
        seq_lengths=(queries, keys),
    )


def of_mask(visible: Tensor) -> Sight:
    """Sight by a mask that broadcasts to (B, H, Nq, Nk)."""
    visible = some = every = visible[(None,) * (4 - visible.ndim)]
    for axis in (2, 3):
        if visible.shape[axis] != 1:
            missing = (0, 0) * (3 - axis) + (0, -visible.shape[axis] % BLOCK)
            some = F.pad(some, missing).unflatten(axis, (-1, BLOCK)).any(axis + 1)
            every = F.pad(every, missing, value=True).unflatten(axis, (-1, BLOCK)).all(axis + 1)
    return Sight(looked_up(visible), some, every)


def of_geometry(mask: GeometricMask, q: TokenGrid, k: TokenGrid, device: Device) -> Sight:
    """Sight by where tokens lie.

    A block is judged by the range of its coordinates: it may count as seeing where no pair of it does, and is then
    computed in vain.
    """
    limits = _limits(mask, q, k, device)

    def pair(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        sees = limits[0][0][i] <= limits[0][1][j]
        for of_query, of_key in limits[1:]:
            sees = sees & (of_query[i] <= of_key[j])
        return sees

    tiles = [(_tiles(of_query)[:, None], _tiles(of_key)) for of_query, of_key in limits]
    some = torch.stack([rows.amin(-1) <= columns.amax(-1) for rows, columns in tiles]).all(0)
    every = torch.stack([rows.amax(-1) <= columns.amin(-1) for rows, columns in tiles]).all(0)
    return Sight(pair, some[None, None], every[None, None])


@once_per_forward
def _limits(mask: GeometricMask, q: TokenGrid, k: TokenGrid, device: Device) -> tuple[tuple[Tensor, Tensor], ...]:
    """Numbers of queries (Nq,) and keys (Nk,): a query sees a key where none of its numbers exceeds the key's."""
    of_q, of_k = q.positions(device), k.positions(device)
    found = []
    for axis, radius in enumerate(mask.radii(q.ndim) or ()):  # prefix tokens see all and are seen by all
        for sign in (1, -1):
            rows, columns = sign * of_q[:, axis], sign * of_k[:, axis] + radius
            found.append((_behind_prefix(rows, q, -FAR), _behind_prefix(columns, k, FAR)))
    if mask.is_causal:  # the numbers in raster order, last first; a prefix token comes before all
        low = [min(a, b) for a, b in zip(q.origin, k.origin, strict=True)]
        sizes = [max(a, b) - first for a, b, first in zip(q.reach, k.reach, low, strict=True)]
        rows, columns = -numbered(of_q, low, sizes), -numbered(of_k, low, sizes)
        found.append((_behind_prefix(rows, q, 1), _behind_prefix(columns, k, 1)))
    return tuple(found)


def _behind_prefix(values: Tensor, grid: TokenGrid, of_prefix: int) -> Tensor:
    return F.pad(values, (grid.num_prefix, 0), value=of_prefix).to(torch.int32)


def _tiles(values: Tensor) -> Tensor:
    """(N,) -> (blocks, tokens of a block), the last block filled with its last value."""
    missing = -values.shape[0] % BLOCK
    return torch.cat([values, values[-1:].expand(missing)]).unflatten(0, (-1, BLOCK))


def _is_whole(tokens: int, device: Device) -> Tensor:
    """Which blocks have all their tokens."""
    return torch.arange(1, -(-tokens // BLOCK) + 1, device=device) * BLOCK <= tokens


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row of blocks has, int32 (..., bq), and their numbers, those first: int32 (..., bq, bk)."""
    order = blocks.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), order.to(torch.int32)
