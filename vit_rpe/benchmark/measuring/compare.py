"""One comparison: several jobs that differ in what they run, timed in turns, and the peak memory of each."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vit_rpe.benchmark.candidates.jobs import Job, callable_of
from vit_rpe.benchmark.measuring.intervals import Interval
from vit_rpe.benchmark.measuring.memory import Peak, measure_peak
from vit_rpe.benchmark.measuring.timing import Timing, interleave


class Effort(NamedTuple):
    """How long to measure: seconds and rounds of one comparison, and by which clock."""

    seconds: float = 20.0
    rounds: int = 31
    least: int = 6
    clock: str = "wall"


class Result(NamedTuple):
    """What one candidate took, over the reference of its comparison.

    Attributes:
        setting: the comparison in words.
        seconds: median of one call.
        time: ratio to the reference.
        peak: peak memory in bytes, with the same of the reference; None where it was not measured.
        target: largest ratio wanted; None where there is none.
    """

    setting: str
    name: str
    reference: str
    seconds: float
    time: Interval | None
    peak: int | None = None
    reference_peak: int | None = None
    target: float | None = None

    @property
    def memory(self) -> float | None:
        """Peak memory over that of the reference."""
        return None if self.peak is None or self.reference_peak is None else self.peak / self.reference_peak


def compare_times(jobs: Mapping[str, Job], references: Mapping[str, str], setting: str, effort: Effort) -> list[Result]:
    """Time all jobs in turns.

    Args:
        jobs: by name.
        references: for each name, the job it is held against; one without an entry is only timed.
    """
    ready = {name: callable_of(job) for name, job in jobs.items()}
    device = next(iter(ready.values()))[1]
    timings = interleave({name: work for name, (work, _) in ready.items()}, device=device, **_timing_options(effort))
    return [_result(name, references.get(name), timings, setting) for name in jobs]


def compare_memory(
    jobs: Mapping[str, Job], reference: str, setting: str, *, threads: int | None, clock: str = "wall"
) -> list[Result]:
    """Peak memory of every job, each in a process of its own; the time is that of its only call, without an interval.

    Raises:
        RuntimeError: a child failed.
    """
    peaks: dict[str, Peak] = {name: measure_peak(job, threads=threads) for name, job in jobs.items()}
    base = peaks[reference].bytes
    seconds = {name: peak.cpu if clock == "cpu" else peak.wall for name, peak in peaks.items()}
    return [
        Result(setting, name, reference, seconds[name], None, peak=peak.bytes, reference_peak=base)
        for name, peak in peaks.items()
    ]


def machine() -> str:
    """The machine and versions a table belongs to, in one line."""
    cores = torch.get_num_threads()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{_cpu_name()}, {cores} threads"
    return f"{device}; torch {torch.__version__}, Python {platform.python_version()}, {platform.system()}"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _timing_options(effort: Effort) -> dict[str, Any]:
    return {"seconds": effort.seconds, "rounds": effort.rounds, "least": effort.least, "clock": effort.clock}


def _result(name: str, reference: str | None, timings: Mapping[str, Timing], setting: str) -> Result:
    mine = timings[name]
    ratio = None if reference is None else mine.over(timings[reference])
    return Result(setting, name, reference or "", mine.typical, ratio)
