"""ConViT, arXiv 2103.10697 eq. 6: a quadratic of the offset per head."""

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"strength": [{"strength": 0.3}]}


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    if pair.delta is None:
        return Answer(pair.content)
    squared, *linear = encoding.v[pair.head]
    total = squared * sum(delta * delta for delta in pair.delta)
    for factor, delta in zip(linear, pair.delta, strict=True):
        total = total + factor * delta
    return Answer(pair.content + total)


def swap_axes(state: dict) -> dict:
    return {"v": state["v"][:, [0, 2, 1]]}
