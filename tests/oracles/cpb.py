"""Swin V2, arXiv 2111.09883 section 3.3: a network of log offsets, evaluated for this pair."""

import math

import torch

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "mode": [{"mode": "log"}],
    "hidden": [{"hidden": 7}, {"hidden": 6, "mode": "log"}],
    "native": [{"native": (4, 9)}, {"native": (3,)}, {"native": (7, 4, 9)}],
    "prefix": [{"prefix": "learned", "hidden": 7}],
}


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    return "native" in options and len(options["native"]) != len(native.size)


def coordinate(delta: int, mode: str, size: int) -> float:
    if mode == "log":
        return math.copysign(math.log(1 + abs(delta)), delta)
    if size == 1:
        return 0.0
    x = 8 * delta / (size - 1)
    return math.copysign(math.log2(1 + abs(x)) / math.log2(8), x)


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    if pair.delta is None:
        learned = encoding.prefix_bias
        return Answer(pair.content if learned is None else pair.content + learned[pair.head, pair.prefix_case])
    native = encoding.spec.get("native") or encoding.grid.size
    inputs = [coordinate(d, encoding.mode, size) for d, size in zip(pair.delta, native, strict=True)]
    hidden = encoding.fc1.bias
    for axis, value in enumerate(inputs):
        hidden = hidden + encoding.fc1.weight[:, axis] * value
    out = (torch.clamp(hidden, min=0) * encoding.fc2.weight[pair.head]).sum()
    if encoding.mode == "swinv2":
        return Answer(pair.content + 16 / (1 + torch.exp(-out)))
    return Answer(pair.content + out + encoding.fc2.bias[pair.head])


def swap_axes(state: dict) -> dict:
    return {key: value.flip(1) if key == "fc1.weight" else value for key, value in state.items()}
