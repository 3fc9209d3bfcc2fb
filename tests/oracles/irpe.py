"""iRPE, arXiv 2107.14222 eq. 14-24: bucket of the offset by the piecewise index, per method; vectors or scalars."""

import math

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

ALL = {"on": ("q", "k", "v")}
CHANGES: dict = {
    "method": [
        {"method": "cross"},
        {"method": "euclidean"},
        {"method": "quantization"},
        ({"method": "euclidean"}, {"method": "quantization"}),
        ({"method": "cross"}, {"method": "cross", **ALL}),
        (ALL, {"method": "quantization", **ALL}),
    ],
    "mode": [
        {"mode": "bias"},
        ({"mode": "bias"}, {"mode": "bias", "method": "cross"}),
        ({"mode": "bias"}, {"mode": "bias", "method": "euclidean"}),
    ],
    "on": [{"on": ("q",)}, {"on": ("v",)}, ALL],
    "ratio": [{"ratio": 1.2}, {"ratio": 3.0}],
}


def g(x: float, ratio: float) -> int:
    """The piecewise index, rounded as in the paper, the cap truncated last."""
    alpha, beta, gamma = ratio, 2 * ratio, 8 * ratio
    if abs(x) <= alpha:
        return round(x)
    far = round(alpha + math.log(abs(x) / alpha) / math.log(gamma / alpha) * (beta - alpha))
    return int(math.copysign(min(beta, far), x))


def buckets(encoding: PositionEncoding, pair: Pair) -> list[tuple[str, int]]:
    """The table (by ending of its name) and row of a pair; two with ``cross``."""
    method, ratio = encoding.spec.get("method", "product"), encoding.spec.get("ratio", 1.9)
    half = int(2 * ratio)
    levels = 2 * half + 1
    endings = {1: [""], 2: ["_h", "_w"], 3: ["_t", "_h", "_w"]}[len(pair.q_grid.size)]
    if pair.delta is None:
        return [(ending, -1) for ending in endings] if method == "cross" else [("", -1)]
    if method == "cross":
        return [(ending, g(delta, ratio) + half) for ending, delta in zip(endings, pair.delta, strict=True)]
    if method == "product":
        row = 0
        for delta in pair.delta:
            row = row * levels + g(delta, ratio) + half
        return [("", row)]
    squared = sum(delta * delta for delta in pair.delta)
    return [("", g(round(math.sqrt(squared)) if method == "euclidean" else squared, ratio))]


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    logit, value = pair.content, None
    if pair.delta is None and encoding.grid.num_prefix == 0:
        return Answer(logit)
    for ending, row in buckets(encoding, pair):
        if encoding.spec.get("mode") == "bias":
            logit = logit + getattr(encoding, "table" + ending)[pair.head, row]
            continue
        for side in encoding.spec.get("on", ("k",)):
            vector = getattr(encoding, f"table_{side}{ending}")[row]
            if side == "v":
                value = vector if value is None else value + vector
            else:
                logit = logit + pair.s * ((pair.q if side == "k" else pair.k) * vector).sum()
    return Answer(logit, value=value)


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    return options.get("method") == "cross" and len(native.size) == 1


def swap_axes(state: dict) -> dict:
    """The product table has a 7 x 7 block of buckets, then the prefix bucket."""
    table = state["table_k"].clone()
    table[:49] = table[:49].reshape(7, 7, -1).transpose(0, 1).reshape(49, -1)
    return state | {"table_k": table}
