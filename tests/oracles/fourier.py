"""GOAT, arXiv 2601.15380: a series of cosines and sines of the offset, summed over axes."""

import math

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"terms": [{"terms": 3}, {"terms": 1}], "base": [{"base": 7.0}, {"base": 7.0, "terms": 3}]}


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    if pair.delta is None:
        return Answer(pair.content)
    terms, base = encoding.spec.get("terms", 16), encoding.spec.get("base", 10000.0)
    total = pair.content
    for axis, delta in enumerate(pair.delta):
        for r in range(terms):
            angle = delta * (base ** (-r / (terms - 1)) if terms > 1 else 1.0)
            total = total + encoding.cosine[axis, pair.head, r] * math.cos(angle)
            total = total + encoding.sine[axis, pair.head, r] * math.sin(angle)
    return Answer(total)


def swap_axes(state: dict) -> dict:
    return {name: value.flip(0) for name, value in state.items()}
