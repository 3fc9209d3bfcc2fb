"""The median of a few noisy ratios, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median
from typing import NamedTuple


class Interval(NamedTuple):
    """A median and the bounds that hold it with 95 % confidence (fewer than 6 values: their smallest and largest)."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Order statistics that bracket the median whatever the distribution of the values.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a median needs at least one value")
    ordered, n = sorted(values), len(values)
    rank, tail = 0, 0.0
    while rank < n // 2:
        tail += comb(n, rank) / 2**n
        if tail > (1 - confidence) / 2:
            break
        rank += 1
    rank = max(rank, 1)
    return Interval(median(ordered), ordered[rank - 1], ordered[n - rank])


def missed(interval: Interval, target: float) -> bool:
    """A target is missed only when the whole interval is above it."""
    return interval.low > target
