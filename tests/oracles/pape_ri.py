"""PaPE, arXiv 2602.01418, rotation-invariant: a paraboloid whose width the query decides."""

import math

import torch

from tests.oracles._pair import Answer, Pair
from tests.oracles.pape import PREFIX_HAS_A_PLACE, difference  # noqa: F401
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {}


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    a = torch.log1p(torch.exp(encoding.a.weight[pair.head] @ pair.x))
    squared = sum(d * d for d in difference(pair))
    return Answer(pair.content - a * encoding.c[pair.head] ** 2 * squared / math.sqrt(len(pair.q)))
