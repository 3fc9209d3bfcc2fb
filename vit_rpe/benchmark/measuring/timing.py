"""Timing that survives a busy machine: candidates take turns, and only ratios within one round count."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

import torch

from vit_rpe.benchmark.measuring.intervals import Interval, median_interval

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""``cpu`` counts the time of this process only; with one thread it does not see what others do."""


class Timing(NamedTuple):
    """Seconds of each round of one candidate."""

    seconds: list[float]

    @property
    def typical(self) -> float:
        return median(self.seconds)

    def over(self, reference: Timing) -> Interval:
        """Ratio to a candidate of the same run, round by round."""
        pairs = zip(self.seconds, reference.seconds, strict=True)
        return median_interval([mine / other for mine, other in pairs])


def interleave(
    work: Mapping[str, Callable[[], object]],
    *,
    seconds: float,
    rounds: int = 31,
    least: int = 6,
    clock: str = "wall",
    shortest: float = 0.02,
    device: torch.device | None = None,
) -> dict[str, Timing]:
    """Time every candidate once a round, in turns of changing order, until the time or the rounds are used up.

    Args:
        work: what to time, by name; each is called once or twice before, to warm up.
        seconds: stop beginning rounds after this long, but not before ``least`` rounds.
        rounds, least: most and fewest rounds.
        clock: ``"wall"`` or ``"cpu"``.
        shortest: a candidate quicker than this is called several times a round.
        device: synchronised before a clock is read, where it works asynchronously.

    Raises:
        ValueError: no candidates, or an unknown clock.
    """
    if not work or clock not in CLOCKS:
        raise ValueError(f"need candidates and a clock out of {list(CLOCKS)}, got {len(work)} and {clock!r}")
    read = CLOCKS[clock]
    names = list(work)
    calls = {name: _calls(work[name], shortest, device) for name in names}
    found: dict[str, list[float]] = {name: [] for name in names}
    end = time.perf_counter() + seconds
    for number in range(rounds):
        if number >= least and time.perf_counter() > end:
            break
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            _settle(device)
            start = read()
            for _ in range(calls[name]):
                work[name]()
            _settle(device)
            found[name].append((read() - start) / calls[name])
    return {name: Timing(values) for name, values in found.items()}


def _calls(work: Callable[[], object], shortest: float, device: torch.device | None) -> int:
    for first in (True, False):
        start = time.perf_counter()
        work()
        _settle(device)
        taken = time.perf_counter() - start
        if first and taken >= 5 * shortest:
            return 1
    return max(1, round(shortest / max(taken, 1e-6)))


def _settle(device: torch.device | None) -> None:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
