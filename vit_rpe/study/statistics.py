"""Mean, spread and intervals of a few runs, and differences paired by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import t as student_t


@dataclass(frozen=True)
class Summary:
    """Of n numbers: mean, standard deviation (n - 1), and half the width of the 95 % interval of the mean.

    ``sd`` and ``half`` are NaN for a single number: one run says nothing of its spread.
    """

    count: int
    mean: float
    sd: float
    half: float

    def __str__(self) -> str:
        if math.isnan(self.half):
            return f"{self.mean:.2f} (one run)"
        return f"{self.mean:.2f} ± {self.half:.2f}"


def summarise(values: Sequence[float]) -> Summary:
    """Mean and Student's t interval, mean ± t(0.975, n - 1) sd / sqrt(n).

    Raises:
        ValueError: no values.
    """
    count = len(values)
    if count == 0:
        raise ValueError("a summary needs at least one value")
    mean = math.fsum(values) / count
    if count == 1:
        return Summary(1, mean, math.nan, math.nan)
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Summary(count, mean, sd, float(student_t.ppf(0.975, count - 1)) * sd / math.sqrt(count))


def paired(values: dict[int, float], baseline: dict[int, float]) -> Summary | None:
    """The differences ``values - baseline`` over the seeds both have; None where they share none."""
    seeds = sorted(set(values) & set(baseline))
    return summarise([values[seed] - baseline[seed] for seed in seeds]) if seeds else None
