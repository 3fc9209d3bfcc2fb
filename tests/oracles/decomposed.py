"""MViTv2, arXiv 2112.01526 eq. 4 and 5: q . sum_a R_a[delta_a], the query unscaled."""

import math

from tests.oracles._pair import Answer, Pair, clamp
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"resample": [{"resample": "geometric"}], "init_std": [{"init_std": 0.5}]}


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    logit = pair.content
    for axis, delta in enumerate(pair.delta or ()):
        table = getattr(encoding, f"table_{axis}")
        size = (len(table) + 1) // 2
        q_step, k_step = (grid.stride[axis] if grid.stride else 1 for grid in (pair.q_grid, pair.k_grid))
        k_ratio = k_step // math.gcd(q_step, k_step)
        k_size = (size - 1) // k_ratio + 1  # keys that fit into the native axis
        row = delta // math.gcd(q_step, k_step) + (k_size - 1) * k_ratio
        logit = logit + (pair.q * table[clamp(row, 0, 2 * size - 2)]).sum()
    return Answer(logit)
