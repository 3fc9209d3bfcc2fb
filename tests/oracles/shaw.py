"""Self-Attention with Relative Position Representations, arXiv 1803.02155 eq. 3 and 4; axes are summed."""

from tests.oracles._pair import Answer, Pair, clamp
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "resample": [({"max_distance": "exact"}, {"max_distance": "exact", "resample": "geometric"})],
    "max_distance": [{"max_distance": 0}, {"max_distance": 1}, {"max_distance": "exact"}],
    "value": [{"value": False}],
    "share_heads": [{"share_heads": False}],
    "init_std": [{"init_std": 0.5}],
    "prefix": [{"prefix": "learned"}],
}


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    if pair.delta is None:
        learned = encoding.prefix_bias
        return Answer(pair.content if learned is None else pair.content + learned[pair.head, pair.prefix_case])
    logit, value = pair.content, None
    for axis, delta in enumerate(pair.delta):
        keys = getattr(encoding, f"key_{axis}")
        keys = keys[pair.head if len(keys) > 1 else 0]
        largest = (len(keys) - 1) // 2
        row = clamp(delta, -largest, largest) + largest
        logit = logit + pair.s * (pair.q * keys[row]).sum()
        if encoding.spec.get("value", True):
            values = getattr(encoding, f"value_{axis}")
            values = values[pair.head if len(values) > 1 else 0]
            value = values[row] if value is None else value + values[row]
    return Answer(logit, value=value)
