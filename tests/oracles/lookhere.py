"""LookHere, arXiv 2405.13985: what a head sees, as an angle on a compass seen from the query."""

import math

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "fov": [{"fov": 180}, {"fov": 45}],
    "depth_index": [
        ({}, {"depth_index": 0, "depth": 5}),
        ({"depth_index": 1, "depth": 5}, {"depth_index": 4, "depth": 5}),
    ],
    "rounded": [{"rounded": True}],
    "depth": [({"depth_index": 1, "depth": 5}, {"depth_index": 1, "depth": 9})],
}
AXES_ALIKE = False  # heads look up before they look left

# First and last angle each directed head sees, in degrees, anticlockwise; right is 0, up is 90.
VIEWS = {
    180: [(0, 180), (180, 360), (90, 270), (270, 450)] * 2,
    90: [(90, 180), (0, 90), (180, 270), (270, 360), (45, 135), (225, 315), (135, 225), (315, 405)],
    45: [(90, 135), (225, 270), (135, 180), (0, 45), (45, 90), (270, 315), (180, 225), (315, 360)],
}


def in_view(head: int, num_heads: int, fov: int, dy: int, dx: int) -> bool:
    """``dy``, ``dx``: how far the key is below and to the right of the query."""
    directed = num_heads - num_heads // 3
    if head >= directed or (dy, dx) == (0, 0):
        return True
    first, last = VIEWS[fov][head % 8]
    angle = math.degrees(math.atan2(-dy, dx)) % 360
    return any(first - 1e-6 <= angle + turn <= last + 1e-6 for turn in (0, 360))


def slope(head: int, num_heads: int, fov: int) -> float:
    directed = num_heads - num_heads // 3
    if head >= directed:
        return [1 / 4, 1 / 16, 1 / 64, 1 / 256][(head - directed) % 4]
    return 1 / 4 if fov == 180 and head % 8 >= 4 else 1 / 2


def in_bfloat16(value: float) -> float:
    """The nearest number of 8 binary digits, the even one of two."""
    if value == 0:
        return 0.0
    unit = 2.0 ** (math.frexp(value)[1] - 8)
    return round(value / unit) * unit


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    if pair.delta is None:
        return Answer(pair.content)
    options = encoding.spec
    fov, index, depth = options.get("fov", 90), options.get("depth_index"), options.get("depth")
    factor = 1.0 if depth is None else 1.5 + (0.5 - 1.5) * index / (depth - 1)
    m = factor * slope(pair.head, encoding.num_heads, fov)
    dy, dx = (-d for d in pair.delta)
    seen = in_view(pair.head, encoding.num_heads, fov, dy, dx)
    penalty = m * math.hypot(dy, dx)
    return Answer(pair.content - (in_bfloat16(penalty) if options.get("rounded") else penalty), visible=seen)
