"""DeBERTa, arXiv 2006.03654 eq. 4, with b(i - j) in both terms as released; log buckets of arXiv 2111.09543."""

import math

from torch import Tensor

from tests.oracles._pair import Answer, Pair, clamp
from vit_rpe.encodings import PositionEncoding

SMALL = {"span": 4, "max_distance": 7}
CHANGES: dict = {
    "directions": [{"directions": ("c2p",)}, {"directions": ("p2c",)}],
    "span": [SMALL, ({"max_distance": None}, {"max_distance": None, "span": 2})],
    "max_distance": [({"span": 4, "max_distance": None}, SMALL)],
}


def bucket(delta: int, span: int, largest: int | None) -> int:
    middle = span // 2
    if largest is None or abs(delta) <= middle:
        return delta
    far = math.log(abs(delta) / middle) / math.log((largest - 1) / middle) * (middle - 1)
    return int(math.copysign(math.ceil(far - 1e-9) + middle, delta))


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    directions = encoding.spec.get("directions", ("c2p", "p2c"))
    scale = pair.s / math.sqrt(1 + len(directions))
    score = (pair.q * pair.k).sum()
    for axis, delta in enumerate(pair.delta or ()):
        span = encoding.spec.get("span", 256)
        row = clamp(bucket(delta, span, encoding.spec.get("max_distance", 512)) + span, 0, 2 * span - 1)
        embedded = encoding.embed[axis * 2 * span + row]
        if "c2p" in directions:
            score = score + (pair.q * head_part(encoding.key_proj.weight @ embedded, pair)).sum()
        if "p2c" in directions:
            projected = encoding.query_proj.weight @ embedded + encoding.query_proj.bias
            score = score + (pair.k * head_part(projected, pair)).sum()
    return Answer(scale * score)


def head_part(vector: Tensor, pair: Pair) -> Tensor:
    width = len(pair.q)
    return vector[pair.head * width : (pair.head + 1) * width]


def swap_axes(state: dict) -> dict:
    return state | {"embed": state["embed"].roll(len(state["embed"]) // 2, 0)}
