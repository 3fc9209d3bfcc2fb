"""FIRE, arXiv 2310.04418 eq. 5: a network of log distance over log of max(L, the query's largest distance)."""

import math
from itertools import product

import torch
from torch import Generator

from tests.oracles._pair import Answer, Pair, common
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"causal": [{"causal": True}]}
OFFSET_IS_ALL = False  # where in the lattice the query is decides what it divides by
NATIVE_SIZE_COUNTS = True


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    return options.get("causal", False) and len(native.size) != 1


def draw(encoding: PositionEncoding, generator: Generator) -> None:
    encoding.c.data.fill_(0.7)
    encoding.L.data.fill_(2.3)


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    if pair.delta is None:
        return Answer(pair.content)
    distance = math.dist(pair.q_pos, pair.k_pos)
    if encoding.causal:
        farthest = float(pair.q_pos[0])
    else:
        extent = pair.k_grid.extent or (pair.k_grid.size if pair.k_grid.stride is None else common(pair))
        farthest = max(math.dist(pair.q_pos, place) for place in product(*(range(size) for size in extent)))
    limit = encoding.L if encoding.L.item() > farthest else farthest
    ratio = torch.log(encoding.c * distance + 1) / (torch.log(encoding.c * limit + 1) + 1e-6)
    hidden = torch.clamp(encoding.fc1.weight[:, 0] * ratio + encoding.fc1.bias, min=0)
    return Answer(pair.content + (hidden * encoding.fc2.weight[pair.head]).sum() + encoding.fc2.bias[pair.head])
