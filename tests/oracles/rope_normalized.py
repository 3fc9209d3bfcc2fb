"""DINOv3, arXiv 2508.10104: rotation by coordinates in [-1, 1] of the grid in hand."""

import math

from tests.oracles._pair import Answer, Pair, common
from tests.oracles.rope import turned
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "base": [{"base": 5.0}],
    "normalize": [{"normalize": "min"}, {"normalize": "max"}],
    "shift": [{"shift": 0.3}],
    "jitter": [{"jitter": 1.5}],
    "rescale": [{"rescale": 1.5}],
}
AXES_HAVE_CHANNELS = 2


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    return "normalize" in options and len(native.size) == 1


def angles(position: tuple[int, ...] | None, extent: list[int], width: int, options: dict) -> list[float]:
    if position is None:
        return [0.0] * (width // 2)
    divisor = {"min": [min(extent)] * 3, "max": [max(extent)] * 3, "separate": extent}[
        options.get("normalize", "separate")
    ]
    share = width // (2 * len(extent))
    found = []
    for place, size in zip(position, divisor, strict=False):
        x = 2 * (place + 0.5) / size - 1
        found += [2 * math.pi * x / options.get("base", 100.0) ** (t / share) for t in range(share)]
    return found


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    q = turned(pair.q, angles(pair.q_pos, common(pair), len(pair.q), encoding.spec))
    k = turned(pair.k, angles(pair.k_pos, common(pair), len(pair.k), encoding.spec))
    return Answer(pair.s * (q * k.conj()).real.sum())
