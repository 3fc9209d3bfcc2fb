"""RoFormer, arXiv 2104.09864 eq. 15, axial over the axes of a grid (arXiv 2403.13298 eq. 9, 10).

Written with complex numbers: q and k turned by exp(i x theta), the logit is the real part of q conj(k).
"""

import math

import torch
from torch import Tensor

from tests.oracles._pair import Answer, Pair, common
from vit_rpe.encodings import PositionEncoding
from vit_rpe.position.geometry import TokenGrid

CHANGES: dict = {"base": [{"base": 7.0}], "reference": [{"reference": (7, 5)}]}
AXES_HAVE_CHANNELS = True


def turned(vector: Tensor, angles: list[float]) -> Tensor:
    """Pairs (c, c + D/2) as complex numbers, each turned by its angle."""
    half = len(vector) // 2
    turns = torch.tensor([complex(math.cos(a), math.sin(a)) for a in angles], dtype=torch.complex128)
    return torch.complex(vector[:half], vector[half:]) * turns


def refuses(options: dict, native: TokenGrid, q_grid: TokenGrid, k_grid: TokenGrid) -> bool:
    return "reference" in options and len(options["reference"]) != len(native.size)


def angles(
    lattice: list[int], position: tuple[int, ...] | None, head_dim: int, base: float, spans: tuple[int, ...] | None
) -> list[float]:
    """``spans``: positions are stretched so that any grid spans this size (EVA-02, arXiv 2303.11331)."""
    if position is None:
        return [0.0] * (head_dim // 2)
    share = head_dim // (2 * len(position))
    places = [x if spans is None else x * spans[a] / lattice[a] for a, x in enumerate(position)]
    return [x * base ** (-t / share) for x in places for t in range(share)]


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    axes, width = len(pair.q_grid.size), len(pair.q)
    base = encoding.spec.get("base") or (10000.0 if axes == 1 else 100.0)
    spans = encoding.spec.get("reference")
    q = turned(pair.q, angles(common(pair), pair.q_pos, width, base, spans))
    k = turned(pair.k, angles(common(pair), pair.k_pos, width, base, spans))
    return Answer(pair.s * (q * k.conj()).real.sum())
