"""Transformer-XL, arXiv 1901.02860 section 3.3: s[(q + u).k + (q + v).W r(delta)]; the width of r is shared by axes."""

import math

import torch

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {}


def sinusoid(delta: int, width: int) -> list[float]:
    angles = [delta / 10000 ** (2 * t / width) for t in range(width // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    if pair.delta is None:
        return Answer(pair.content)
    weight = encoding.proj.weight
    width, head_dim = weight.shape[0], len(pair.q)
    r = [x for delta in pair.delta for x in sinusoid(delta, width // len(pair.delta))]
    position = weight @ torch.tensor(r, dtype=weight.dtype)
    position = position[pair.head * head_dim : (pair.head + 1) * head_dim]
    u, v = encoding.u[pair.head], encoding.v[pair.head]
    return Answer(pair.s * (((pair.q + u) * pair.k).sum() + ((pair.q + v) * position).sum()))


def swap_axes(state: dict) -> dict:
    weight = state["proj.weight"]
    half = weight.shape[1] // 2  # the first half of r is the first axis'
    return state | {"proj.weight": weight.roll(half, 1)}
