"""One entry per offset and axis, summed; clipped per axis."""

from tests.oracles._pair import Answer, Pair, clamp
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "resample": [{"resample": "geometric"}],
    "max_distance": [{"max_distance": 0}, {"max_distance": 1}],
    "share_heads": [{"share_heads": True}],
    "symmetric": [{"symmetric": True}, {"symmetric": True, "max_distance": 1}],
    "init": [{"init": "impulse"}, {"init": "impulse", "prefix": "learned"}],
    "strength": [({"init": "impulse"}, {"init": "impulse", "strength": 0.3})],
    "init_std": [{"init_std": 0.5}],
    "prefix": [{"prefix": "learned"}, {"prefix": "learned", "share_heads": True}],
}


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    head = pair.head if encoding.table_0.shape[0] > 1 else 0
    if pair.delta is None:
        learned = encoding.prefix_bias
        return Answer(pair.content if learned is None else pair.content + learned[head, pair.prefix_case])
    logit = pair.content
    for axis, delta in enumerate(pair.delta):
        table = getattr(encoding, f"table_{axis}")[head]
        if encoding.spec.get("symmetric"):
            logit = logit + table[min(abs(delta), len(table) - 1)]
            continue
        largest = (table.shape[0] - 1) // 2
        logit = logit + table[clamp(delta, -largest, largest) + largest]
    return Answer(logit)
