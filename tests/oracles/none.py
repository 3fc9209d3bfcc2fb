"""No position: the scaled product alone."""

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {}


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    return Answer(pair.content)
