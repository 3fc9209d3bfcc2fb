"""KERPLE, arXiv 2205.09921 eq. 2 and 3, with the Euclidean distance."""

import math

import torch
from torch import Generator

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"variant": [{"variant": "power"}]}


def draw(encoding: PositionEncoding, generator: Generator) -> None:
    for parameter in encoding.parameters():
        parameter.data = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype) * 1.8 + 0.1


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    if pair.delta is None:
        return Answer(pair.content)
    distance = math.sqrt(sum(d * d for d in pair.delta))
    r1, r2 = encoding.r1[pair.head], encoding.r2[pair.head]
    if encoding.variant == "log":
        return Answer(pair.content - r1 * torch.log(1 + r2 * distance))
    return Answer(pair.content - r1 * (torch.exp(r2 * math.log(distance)) if distance else 0.0))
