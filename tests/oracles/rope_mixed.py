"""RoPE-Mixed, arXiv 2403.13298 eq. 11, 12: the pair of channels turned by the offset times the learned frequency."""

import torch

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"base": [{"base": 3.0}]}


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    half = len(pair.q) // 2
    angles = torch.zeros(half, dtype=pair.q.dtype)
    for axis in range(len(pair.q_grid.size)):
        query = 0 if pair.q_pos is None else pair.q_pos[axis]
        key = 0 if pair.k_pos is None else pair.k_pos[axis]
        angles = angles + (query - key) * encoding.frequencies[axis, pair.head]
    a, b, c, d = pair.q[:half], pair.q[half:], pair.k[:half], pair.k[half:]
    logits = (a * c + b * d) * torch.cos(angles) + (a * d - b * c) * torch.sin(angles)
    return Answer(pair.s * logits.sum())


def swap_axes(state: dict) -> dict:
    return {key: value.flip(0) for key, value in state.items()}
