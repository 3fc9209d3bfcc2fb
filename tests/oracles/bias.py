"""Swin, arXiv 2103.14030 eq. 4: one entry per joint offset, clipped per axis."""

from tests.oracles import bias_axial
from tests.oracles._pair import Answer, Pair, clamp
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "axes": [{"axes": "summed"}, {"axes": "summed", "max_distance": 1, "prefix": "learned"}],
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
    if encoding.axes == "summed":
        return bias_axial.answer(encoding, pair)
    head = pair.head if encoding.table.shape[0] > 1 else 0
    if pair.delta is None:
        learned = encoding.prefix_bias
        return Answer(pair.content if learned is None else pair.content + learned[head, pair.prefix_case])
    entry = encoding.table[head]
    for delta in pair.delta:
        if encoding.spec.get("symmetric"):
            entry = entry[min(abs(delta), len(entry) - 1)]
            continue
        largest = (entry.shape[0] - 1) // 2
        entry = entry[clamp(delta, -largest, largest) + largest]
    return Answer(pair.content + entry)


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    return options.get("axes") == "summed" and len(native.size) == 1


def swap_axes(state: dict) -> dict:
    return {key: value.transpose(1, 2) if key == "table" else value for key, value in state.items()}
