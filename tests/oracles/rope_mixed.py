"""RoPE-Mixed, arXiv 2403.13298 eq. 11, 12: the pair of channels turned by the learned frequency times its place."""

import math

import torch

from tests.oracles._pair import Answer, Pair, common
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "layout": [{"layout": "axial"}, {"layout": "axial", "scaling": "yarn", "native": (1, 2)}],
    "base": [{"base": 3.0}, {"base": 3.0, "layout": "axial"}],
    "normalized": [{"normalized": True}],
    "noise": [{"noise": 0.4}, {"noise": 0.1, "normalized": True}],
    "scaling": [
        {"scaling": "linear", "native": (1, 2)},
        {"scaling": "yarn", "native": (1, 2)},
        {"scaling": "yarn", "native": (3,)},
    ],
    "native": [({"scaling": "linear"}, {"scaling": "linear", "native": (1, 2)})],
}


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    axes = len(native.size)
    return ("native" in options and len(options["native"]) != axes) or (options.get("layout") == "axial" and axes == 1)


def places(encoding: PositionEncoding, pair: Pair, position) -> list[float]:
    """The coordinates of one token; a prefix token stands at 0."""
    if position is None:
        return [0.0] * len(pair.q_grid.size)
    if encoding.spec.get("normalized"):
        return [(place + 0.5) / size for place, size in zip(position, common(pair), strict=True)]
    return [float(place) for place in position]


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    half, axes = len(pair.q) // 2, len(pair.q_grid.size)
    queries, keys = places(encoding, pair, pair.q_pos), places(encoding, pair, pair.k_pos)
    how = encoding.spec.get("scaling")
    native = encoding.spec.get("native") or encoding.grid.size
    sigma = [max(1.0, size / own) for size, own in zip(common(pair), native, strict=True)]
    angles = torch.zeros(half, dtype=pair.q.dtype)
    for axis in range(axes):
        if encoding.spec.get("layout") == "axial":  # this axis has only its own share of the pairs
            mine = torch.tensor([number // (half // axes) == axis for number in range(half)])
            f = encoding.frequencies[pair.head] * mine
        else:
            f = encoding.frequencies[axis, pair.head]
        if how == "linear":
            f = f / sigma[axis]
        if how == "yarn":
            gamma = torch.clamp((native[axis] * abs(f) / (2 * math.pi) - 0.25) / 0.75, 0, 1)
            f = f * (gamma + (1 - gamma) / sigma[axis])
        angles = angles + (queries[axis] - keys[axis]) * f
    a, b, c, d = pair.q[:half], pair.q[half:], pair.k[:half], pair.k[half:]
    logits = (a * c + b * d) * torch.cos(angles) + (a * d - b * c) * torch.sin(angles)
    heat = (0.1 * math.log(math.prod(sigma) ** (1 / axes)) + 1) ** 2 if how == "yarn" else 1.0
    return Answer(pair.s * heat * logits.sum())


def swap_axes(state: dict) -> dict:
    return {key: value.flip(0) for key, value in state.items()}
