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

MEMORY = "peak memory of a process of its own, libraries and weights included; in brackets what the call added"


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
        peak: peak memory of the process in bytes, libraries and weights included, and what of it was there before
            the first call; with the same of the reference; None where it was not measured.
        target: largest ratio wanted; None where there is none.
    """

    setting: str
    name: str
    reference: str
    seconds: float
    time: Interval | None
    peak: Peak | None = None
    reference_peak: Peak | None = None
    target: float | None = None

    @property
    def memory(self) -> float | None:
        """Peak memory of the process over that of the reference."""
        return None if self.peak is None or self.reference_peak is None else self.peak.bytes / self.reference_peak.bytes

    @property
    def call_memory(self) -> float | None:
        """The same for what the call added to libraries, weights and input; None where the reference added nothing."""
        if self.peak is None or self.reference_peak is None or self.reference_peak.added <= 0:
            return None
        return self.peak.added / self.reference_peak.added


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
    seconds = {name: peak.cpu if clock == "cpu" else peak.wall for name, peak in peaks.items()}
    return [
        Result(setting, name, reference, seconds[name], None, peak=peak, reference_peak=peaks[reference])
        for name, peak in peaks.items()
    ]


def machine(clock: str = "wall") -> str:
    """What a table belongs to, in one line: machine, threads, versions, and what its times and memory are."""
    cores = torch.get_num_threads()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{processor_name()}, {cores} threads"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {platform.system()}"
    times = "time that passed" if clock == "wall" else "time of the process"
    return f"{device}; {versions}; {times}; {MEMORY}"


def processor_name() -> str:
    """The processor as it names itself."""
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
