"""LieRE, arXiv 2406.10322: q and k turned by the exponential of a skew-symmetric matrix, one block at a time."""

import torch
from torch import Tensor

from tests.oracles._pair import Answer, Pair, common
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {
    "block": [{"block": 4}, {"block": 2}, {"block": 48}],
    "native": [{"native": (4, 9)}, {"native": (3,)}, {"native": (7, 4, 9)}],
}
OFFSET_IS_ALL = False  # axes do not commute, and coordinates are relative to the lattice


def refuses(options: dict, native, q_grid, k_grid) -> bool:
    return "native" in options and len(options["native"]) != len(native.size)


def exponential(matrix: Tensor) -> Tensor:
    """1 + A + A A / 2 + ... of a thousandth of the matrix, a thousand times (2^10)."""
    small = matrix / 2**10
    total = power = torch.eye(len(matrix), dtype=torch.float64)
    for number in range(1, 9):
        power = power @ small / number
        total = total + power
    for _ in range(10):
        total = total @ total
    return total


def turns(encoding: PositionEncoding, head: int, position, lattice) -> list[Tensor]:
    """The matrix of every block of one token and head."""
    native = encoding.spec.get("native") or encoding.grid.size
    found = []
    for number in range(encoding.generators.shape[2]):
        total = torch.zeros((), dtype=torch.float64)
        for axis, (place, length, own) in enumerate(zip(position, lattice, native, strict=True)):
            m = encoding.generators[axis, head, number]
            along = torch.linspace(0, length / own, length, dtype=torch.float64)[place]
            total = total + along * (torch.triu(m) - torch.triu(m).T)
        found.append(exponential(total))
    return found


def turned(encoding: PositionEncoding, pair: Pair, vector: Tensor, position) -> Tensor:
    if position is None:
        return vector
    known = vars(encoding).setdefault("turns_of_the_oracle", {})  # the same for every pair of a token
    key = pair.head, position, tuple(common(pair))
    if key not in known:
        known[key] = turns(encoding, *key)
    size = encoding.spec.get("block", 8)
    parts = vector.split(size)
    return torch.cat([turn @ part for turn, part in zip(known[key], parts, strict=True)])


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    q, k = turned(encoding, pair, pair.q, pair.q_pos), turned(encoding, pair, pair.k, pair.k_pos)
    return Answer(pair.s * (q * k).sum())


def swap_axes(state: dict) -> dict:
    return {key: value.flip(0) for key, value in state.items()}
