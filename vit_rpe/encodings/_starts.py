"""Starts that make heads look somewhere before anything is learned.

``impulse``: T[h, delta] = -strength norm(delta + c_h)^2, so that head h looks at the key c_h away (key minus query),
one of the 3^n nearest. Structured initialization for vision transformers, arXiv 2505.19985.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

STARTS = ("normal", "impulse")
PUBLISHED: list[tuple[int, ...]] = [(0, 0), (-1, 0), (0, 1), (0, -1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def neighbours(axes: int) -> list[tuple[int, ...]]:
    """Offsets from a token to itself and its 3^n - 1 neighbours, nearest first; in 2-D in the published order."""
    if axes == 2:
        return PUBLISHED
    return sorted(product((-1, 0, 1), repeat=axes), key=lambda place: sum(step * step for step in place))


def impulse_along(axis: int, num_heads: int, axes: int, max_distance: int, strength: float) -> Tensor:
    """One axis's share of the impulse of every head, float32 (H, 2 M + 1); their sum over axes is the impulse."""
    known = neighbours(axes)
    centres = torch.tensor([known[head % len(known)][axis] for head in range(num_heads)])
    offsets = torch.arange(-max_distance, max_distance + 1)
    return -strength * (offsets + centres[:, None]).square().float()
