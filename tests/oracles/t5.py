"""T5, arXiv 1910.10683: logarithmic buckets of key minus query, the last bucket whose lower edge is reached."""

from fractions import Fraction

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "num_buckets": [{"num_buckets": 4, "max_distance": 3}, {"num_buckets": 8, "max_distance": 4}],
    "max_distance": [{"max_distance": 3, "num_buckets": 8}],
    "bidirectional": [
        {"bidirectional": False},
        {"bidirectional": False, "num_buckets": 3, "max_distance": 4},
    ],
    "axes": [{"axes": "joint", "num_buckets": 8, "max_distance": 4}],
    "share_heads": [{"share_heads": True}],
    "init_std": [{"init_std": 0.5}],
    "prefix": [{"prefix": "learned"}, {"prefix": "learned", "axes": "joint", "num_buckets": 4}],
}


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    return options.get("axes") == "joint" and len(native.size) == 1


def bucket(key_minus_query: int, num_buckets: int, max_distance: int, bidirectional: bool) -> int:
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if key_minus_query > 0 else 0
    distance = abs(key_minus_query) if bidirectional else max(-key_minus_query, 0)
    exact = num_buckets // 2
    wide = num_buckets - exact
    if distance < exact:
        return first + distance
    # Wide bucket number n starts at exact * (max_distance / exact)^(n / wide); compared as integer powers.
    number = 0
    while number + 1 < wide and Fraction(distance, exact) ** wide >= Fraction(max_distance, exact) ** (number + 1):
        number += 1
    return first + exact + number


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    shape = (encoding.num_buckets, encoding.max_distance, encoding.bidirectional)
    tables = (
        [encoding.table]
        if encoding.axes == "joint"
        else [getattr(encoding, f"table_{a}") for a in range(encoding.grid.ndim)]
    )
    head = pair.head if tables[0].shape[0] > 1 else 0
    if pair.delta is None:
        learned = encoding.prefix_bias
        return Answer(pair.content if learned is None else pair.content + learned[head, pair.prefix_case])
    buckets = [bucket(-delta, *shape) for delta in pair.delta]
    if encoding.axes == "joint":
        entry = tables[0][head]
        for number in buckets:
            entry = entry[number]
        return Answer(pair.content + entry)
    return Answer(pair.content + sum(table[head, number] for table, number in zip(tables, buckets, strict=True)))
