"""ALiBi, arXiv 2108.12409: -slope times distance; the slope rule of the paper and its released recipe for any H."""

import math

import torch
from torch import Generator

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "metric": [{"metric": "l1"}, {"metric": "linf"}],
    "learned": [{"learned": True}, {"learned": True, "metric": "l1"}],
}


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    return options.get("metric", "l2") != "l2" and len(native.size) == 1


def slope(head: int, num_heads: int) -> float:
    """Geometric from 2^(-8/H); where H is no power of two, the power below first, then odd members above."""
    power = 1
    while power * 2 <= num_heads:
        power *= 2
    if head < power:
        return 2 ** (-8 * (head + 1) / power)
    return 2 ** (-8 * (2 * (head - power) + 1) / (2 * power))


def draw(encoding: PositionEncoding, generator: Generator) -> None:
    if encoding.slopes is not None:
        encoding.slopes.data = torch.rand(encoding.slopes.shape, generator=generator, dtype=encoding.slopes.dtype) + 0.1


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    if pair.delta is None:
        return Answer(pair.content)
    if encoding.metric == "l2":
        distance = math.sqrt(sum(d * d for d in pair.delta))
    elif encoding.metric == "l1":
        distance = float(sum(abs(d) for d in pair.delta))
    else:
        distance = float(max(abs(d) for d in pair.delta))
    m = slope(pair.head, encoding.num_heads) if encoding.slopes is None else encoding.slopes[pair.head]
    return Answer(pair.content - m * distance)
