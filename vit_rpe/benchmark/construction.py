"""Building the 2-D bias: ours against the gather ``table[index]`` of Swin and timm.

The ratio depends on the number of threads: ours is shared by all threads, the gather is not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vit_rpe.benchmark.measuring.compare import Effort, Result
from vit_rpe.benchmark.measuring.timing import interleave
from vit_rpe.encodings import create_encoding
from vit_rpe.position.geometry import TokenGrid, axis_offsets
from vit_rpe.position.terms import dense_bias

TARGETS = {14: 1 / 2, 24: 1 / 3}
HEADS = 6


def measure_construction(effort: Effort) -> list[Result]:
    """Forward, and forward with backward, at 14 x 14 and 24 x 24 with 6 heads; the ratio is ours over the gather."""
    results = []
    for side, target in TARGETS.items():
        for backward in (False, True):
            work = {"gather": _gather(side, backward), "ours": _ours(side, backward)}
            timings = interleave(
                work,
                seconds=effort.seconds / 8,
                rounds=3 * effort.rounds,
                least=effort.least,
                clock=effort.clock,
            )
            setting = f"build the bias, {side}x{side}, {'forward + backward' if backward else 'forward'}"
            ratio = timings["ours"].over(timings["gather"])
            results.append(
                Result(setting, "bias", "table[index]", timings["ours"].typical, ratio, target=round(target, 3))
            )
    return results


def _ours(side: int, backward: bool) -> Callable[[], None]:
    grid = TokenGrid((side, side))
    encoding = create_encoding("bias", HEADS, 64, grid)

    def build() -> Tensor:
        bias = dense_bias(encoding(grid, grid))
        assert bias is not None
        return bias

    return _runner(build, list(encoding.parameters()), (HEADS, side**2, side**2), backward)


def _gather(side: int, backward: bool) -> Callable[[], None]:
    """The usual way: rows of a (positions, heads) table picked by an index made once, then heads to the front."""
    delta = axis_offsets(TokenGrid((side,)), TokenGrid((side,)), 0) + side - 1
    index = (delta[:, None, :, None] * (2 * side - 1) + delta[None, :, None, :]).reshape(-1)
    table = torch.nn.Parameter(torch.randn((2 * side - 1) ** 2, HEADS))

    def build() -> Tensor:
        return table[index].view(side**2, side**2, HEADS).permute(2, 0, 1).contiguous()

    return _runner(build, [table], (HEADS, side**2, side**2), backward)


def _runner(
    build: Callable[[], Tensor], parameters: list[torch.nn.Parameter], shape: tuple[int, ...], backward: bool
) -> Callable[[], None]:
    gradient = torch.randn(shape)

    def run() -> None:
        if backward:
            build().backward(gradient)
            for parameter in parameters:
                parameter.grad = None
        else:
            with torch.no_grad():
                build()

    return run
