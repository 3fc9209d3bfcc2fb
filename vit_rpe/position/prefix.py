"""Rows and columns of prefix tokens, put in front of what is known of grid tokens.

Legend: P grid tokens, N = prefix + P, of queries (q) and keys (k).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.position.geometry import TokenGrid


def pad_prefix(values: Tensor, q: TokenGrid, k: TokenGrid, *, value: float = 0) -> Tensor:
    """Grid pairs (..., Pq, Pk) -> all pairs (..., Nq, Nk), with ``value`` wherever a prefix token takes part."""
    if q.num_prefix == 0 and k.num_prefix == 0:
        return values
    return F.pad(values, (k.num_prefix, 0, q.num_prefix, 0), value=value)


def pad_prefix_with(
    values: Tensor,
    q: TokenGrid,
    k: TokenGrid,
    *,
    to_patch: Tensor | float,
    to_prefix: Tensor | float,
    between: Tensor | float,
) -> Tensor:
    """Grid pairs (..., Pq, Pk) -> all pairs (..., Nq, Nk), with a value for each kind of pair.

    Args:
        to_patch, to_prefix, between: for prefix queries and grid keys, grid queries and prefix keys, prefix tokens
            among themselves; a number, or one per leading index, (...), which may widen those of ``values``.
    """
    shown = [torch.as_tensor(x, dtype=values.dtype, device=values.device) for x in (to_patch, to_prefix, between)]
    lead = torch.broadcast_shapes(values.shape[:-2], *(x.shape for x in shown))
    to_patch, to_prefix, between = (x[..., None, None] for x in shown)
    left = to_prefix.expand(*lead, q.num_patches, k.num_prefix)
    corner = between.expand(*lead, q.num_prefix, k.num_prefix)
    top = torch.cat([corner, to_patch.expand(*lead, q.num_prefix, k.num_patches)], dim=-1)
    return torch.cat([top, torch.cat([left, values.expand(*lead, -1, -1)], dim=-1)], dim=-2)


def pad_tokens(values: Tensor, grid: TokenGrid) -> Tensor:
    """Channels of grid tokens (..., P, F) -> of all tokens (..., N, F), zeros for those of the prefix."""
    return F.pad(values, (0, 0, grid.num_prefix, 0)) if grid.num_prefix else values
