"""MViTv2, arXiv 2112.01526 eq. 4 and 5: q . sum_a R_a[delta_a], the query unscaled."""

from tests.oracles._pair import Answer, Pair, clamp
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"init_std": [{"init_std": 0.5}]}


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    logit = pair.content
    for axis, delta in enumerate(pair.delta or ()):
        table = getattr(encoding, f"table_{axis}")
        middle = (len(table) - 1) // 2
        logit = logit + (pair.q * table[clamp(delta + middle, 0, 2 * middle)]).sum()
    return Answer(logit)
