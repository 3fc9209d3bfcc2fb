"""RoFormer, arXiv 2104.09864 eq. 15, over the axes of a grid (arXiv 2403.13298 eq. 9, 10), and its layouts.

Written with complex numbers: q and k turned by exp(i f.x), the logit is the real part of q conj(k). Where every pair of
channels turns, f, is written out for one pair at a time.
"""

import math
from functools import cache

import torch
from torch import Tensor

from tests.oracles._pair import Answer, Pair, common
from vit_rpe.encodings import PositionEncoding

SPIRAL = {"layout": "spiral", "directions": 4}
CHANGES: dict = {
    "layout": [
        {"layout": "golden"},
        ({}, {"layout": "simplex", "base": 30.0}),  # in 1-D the simplex is the axial layout
        {"layout": "spiral", "base": 50.0},
    ],
    "base": [{"base": 7.0}],
    "fastest": [{"fastest": 1.7}, {"fastest": 0.6, **SPIRAL}],
    "zero_share": [
        {"zero_share": 0.4},
        {"zero_share": 0.3, "layout": "golden"},
        {"zero_share": 0.3, "layout": "simplex"},
        {"zero_share": 0.3, **SPIRAL},
    ],
    "directions": [({"layout": "spiral"}, {"layout": "spiral", "directions": 6})],
    "reference": [{"reference": (7, 5)}],
    "origin": [{"origin": 1.5}, ({"reference": (7, 5)}, {"reference": (7, 5), "origin": 1.0})],
    "registers": [{"registers": 4.0}],
    "scaling": [
        {"scaling": "linear", "native": (1, 2)},
        {"scaling": "ntk", "native": (1, 2)},
        {"scaling": "yarn", "native": (1, 2)},
        {"scaling": "yarn", "native": (3,)},
        {"scaling": "linear", "layout": "golden", "native": (2, 1, 3)},
    ],
    "native": [({"scaling": "linear"}, {"scaling": "linear", "native": (1, 2)})],
}
AXES_HAVE_CHANNELS = 2
GOLDEN = {1: (1 + math.sqrt(5)) / 2, 2: 1.324717957244746, 3: 1.2207440846057596}


def turned(vector: Tensor, angles: Tensor | list[float]) -> Tensor:
    """Pairs (c, c + D/2) as complex numbers, each turned by its angle."""
    half = len(vector) // 2
    turns = torch.exp(1j * torch.as_tensor(angles, dtype=torch.float64))
    return torch.complex(vector[:half], vector[half:]) * turns


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    axes = len(native.size)
    if any(key in options and len(options[key]) != axes for key in ("reference", "native")):
        return True
    if "registers" in options:
        return axes == 1 or native.num_prefix not in {2: (4, 5, 9, 10), 3: (8, 9)}[axes]
    return options.get("layout") == "spiral" and (axes != 2 or 48 % (4 * options.get("directions", 4)) != 0)


def vector(options: dict, axes: int, head: int, pair: int, pairs: int, base: float) -> list[float]:
    """f of one pair of channels of one head, one entry an axis."""
    layout, fastest, share = options.get("layout", "axial"), options.get("fastest", 1.0), options.get("zero_share", 0.0)
    if layout == "golden":
        still = round(share * pairs)
        if pair < still:
            return [0.0] * axes
        number = head * pairs + pair + 1
        z = torch.tensor([number * GOLDEN[axes] ** -axis % 1 for axis in range(1, axes + 1)], dtype=torch.float64)
        point = torch.special.erfinv(2 * z - 1)
        rank = pairs - 1 - pair  # 0 is the fastest
        speed = fastest * base ** (-rank / (pairs - still - 1))
        return (speed * point / point.norm()).tolist()
    if layout == "spiral":
        half = pairs // 2
        number, columns = pair % half, pair >= half
        steps = options.get("directions", 4) // 2
        phi = math.radians(90 * ((number // 2) % steps) / steps)
        direction = [-math.sin(phi), math.cos(phi)] if columns else [math.cos(phi), math.sin(phi)]
        count = half
    elif layout == "simplex":
        count = pairs // (1 if axes == 1 else axes + 1)
        number, corner = pair % count, pair // count
        s, r = math.sqrt(8 / 9), math.sqrt(3) / 2
        tetrahedron = [[1, 0, 0], [-1 / 3, s, 0], [-1 / 3, -s / 2, s * r], [-1 / 3, -s / 2, -s * r]]
        triangle = [[math.cos(math.radians(120 * c)), math.sin(math.radians(120 * c))] for c in range(3)]
        corners = {1: [[1.0]], 2: triangle, 3: tetrahedron}[axes]
        if corner >= len(corners):
            return [0.0] * axes
        direction = corners[corner]
    else:
        count = pairs // axes
        number = pair % count
        direction = [float(axis == pair // count) for axis in range(axes)]
    speed = 0.0 if number >= count - round(share * count) else fastest * base ** (-number / count)
    return [speed * part for part in direction]


@cache
def vectors(options: tuple, axes: int, head: int, pairs: int, base: float, sigma: tuple, native: tuple) -> Tensor:
    """f of every pair of channels of one head on a lattice sigma times as large as the native one, (F, n)."""
    given, found = dict(options), []
    for pair in range(pairs):
        f = vector(given, axes, head, pair, pairs, base)
        how, count = given.get("scaling"), pairs // axes
        for axis, (part, factor, size) in enumerate(zip(f, sigma, native, strict=True)):
            if how == "linear":
                f[axis] = part / factor
            elif how == "ntk":
                f[axis] = part / factor ** (pair % count / (count - 1))
            elif how == "yarn":
                r = size * abs(part) / (2 * math.pi)
                gamma = min(1.0, max(0.0, (r - 0.25) / 0.75))
                f[axis] = part * (gamma + (1 - gamma) / factor)
        found.append(f)
    return torch.tensor(found, dtype=torch.float64)


def place_of_register(number: int, grid, axes: int) -> list[int] | None:
    """Where a prefix token stands on the lattice of registers; None for a class token."""
    prefix = grid.num_prefix
    side = next(m for m in range(2, 9) if m**axes in (prefix, prefix - 1))
    number -= prefix - side**axes
    if number < 0:
        return None
    return [number // side**axis % side for axis in reversed(range(axes))]


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    options, axes, pairs = encoding.spec, len(pair.q_grid.size), len(pair.q) // 2
    native = options.get("native") or encoding.grid.size
    sigma = tuple(max(1.0, size / own) for size, own in zip(common(pair), native, strict=True))
    ones = (1.0,) * axes

    def angles(position, grid, number: int) -> Tensor:
        base, growth = options.get("base") or (10000.0 if axes == 1 else 100.0), sigma
        spans = options.get("reference")
        if position is None and "registers" in options:
            position, base, growth, spans = place_of_register(number, grid, axes), options["registers"], ones, None
        if position is None:
            return torch.zeros(pairs, dtype=torch.float64)
        x = torch.tensor(position, dtype=torch.float64)
        if position is pair.q_pos or position is pair.k_pos:
            x = x + options.get("origin", 0.0)
        if spans is not None:
            x = x * torch.tensor(spans) / torch.tensor(common(pair))
        return vectors(tuple(options.items()), axes, pair.head, pairs, base, growth, native) @ x

    q = turned(pair.q, angles(pair.q_pos, pair.q_grid, pair.q_number))
    k = turned(pair.k, angles(pair.k_pos, pair.k_grid, pair.k_number))
    logit = pair.s * (q * k.conj()).real.sum()
    if options.get("scaling") == "yarn":
        logit = logit * (0.1 * math.log(math.prod(sigma) ** (1 / axes)) + 1) ** 2
    return Answer(logit)
