"""RoFormer, arXiv 2104.09864 eq. 15, axial over the axes of a grid (arXiv 2403.13298 eq. 9, 10).

Written with complex numbers: q and k turned by exp(i x theta), the logit is the real part of q conj(k).
"""

import math

import torch
from torch import Tensor

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"base": [{"base": 7.0}]}
AXES_HAVE_CHANNELS = True


def turned(vector: Tensor, angles: list[float]) -> Tensor:
    """Pairs (c, c + D/2) as complex numbers, each turned by its angle."""
    half = len(vector) // 2
    turns = torch.tensor([complex(math.cos(a), math.sin(a)) for a in angles], dtype=torch.complex128)
    return torch.complex(vector[:half], vector[half:]) * turns


def angles(position: tuple[int, ...] | None, head_dim: int, axes: int, base: float) -> list[float]:
    if position is None:
        return [0.0] * (head_dim // 2)
    share = head_dim // (2 * axes)
    return [x * base ** (-t / share) for x in position for t in range(share)]


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    axes, width = len(pair.q_grid.size), len(pair.q)
    base = encoding.spec.get("base") or (10000.0 if axes == 1 else 100.0)
    q = turned(pair.q, angles(pair.q_pos, width, axes, base))
    k = turned(pair.k, angles(pair.k_pos, width, axes, base))
    return Answer(pair.s * (q * k.conj()).real.sum())
