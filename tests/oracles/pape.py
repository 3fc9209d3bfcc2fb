"""PaPE, arXiv 2602.01418: parabolas of the offset, opened and shifted by what the query holds."""

import math

import torch

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"parabolas": [{"parabolas": 3}]}
PREFIX_HAS_A_PLACE = True  # prefix tokens stand at 0, where coordinates count from 1


def difference(pair: Pair) -> list[int]:
    """Query minus key; coordinates count from 1, prefix tokens are at 0."""
    axes = len(pair.q_grid.size)
    q = [0] * axes if pair.q_pos is None else [place + 1 for place in pair.q_pos]
    k = [0] * axes if pair.k_pos is None else [place + 1 for place in pair.k_pos]
    return [one - other for one, other in zip(q, k, strict=True)]


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    count = encoding.spec.get("parabolas", 50)
    rows = slice(pair.head * count, (pair.head + 1) * count)
    a = torch.log1p(torch.exp(encoding.a.weight[rows] @ pair.x))
    b = encoding.b.weight[rows] @ pair.x
    along = sum(u * d for u, d in zip(encoding.directions[:, pair.head], difference(pair), strict=True))  # (R,)
    return Answer(pair.content + (b * along - a * along**2).sum() / math.sqrt(len(pair.q)))


def swap_axes(state: dict) -> dict:
    return state | {"directions": state["directions"].flip(0)}
