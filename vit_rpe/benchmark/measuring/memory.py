"""Peak memory of one job, measured in a process of its own: ``python -m vit_rpe.benchmark.measuring.memory '{...}'``.

On the CPU it is the largest resident size since the program began, libraries and weights included; on CUDA what
torch's allocator held at most. The child also says how long its one call took.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vit_rpe.benchmark.candidates.jobs import Job, callable_of
from vit_rpe.plugins import load_plugins, loaded_plugins

STATUS = Path("/proc/self/status")


class Peak(NamedTuple):
    """Peak memory in bytes, what of it was there before the first call, and the seconds of that call by each clock."""

    bytes: int
    before: int
    wall: float
    cpu: float

    @property
    def added(self) -> int:
        """Bytes that the call added to libraries, weights and input."""
        return self.bytes - self.before


def measure_peak(job: Job, *, threads: int | None = None, limit: float = 600.0) -> Peak:
    """Run ``job`` once in a fresh process.

    Raises:
        RuntimeError: the child failed (out of memory, for instance) or took longer than ``limit`` seconds.
    """
    text = json.dumps({**job._asdict(), "threads": threads, "plugins": loaded_plugins()})
    try:
        done = subprocess.run(
            [sys.executable, "-m", "vit_rpe.benchmark.measuring.memory", text],
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{job.label}: no result within {limit:.0f} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["killed, probably out of memory"])[-1]
        raise RuntimeError(f"{job.label}: the measuring process failed with status {done.returncode}: {last}")
    return Peak(*json.loads(done.stdout.splitlines()[-1]))


def resident_peak() -> int:
    """Largest resident size of this process in bytes.

    ``ru_maxrss`` alone will not do: on Linux a child inherits the peak of the process that started it.
    """
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main(text: str) -> None:
    """Run the job in ``text`` and print its peak as JSON."""
    options: dict[str, Any] = json.loads(text)
    threads = options.pop("threads")
    load_plugins(options.pop("plugins"))
    if threads is not None:
        torch.set_num_threads(threads)
    work, device = callable_of(Job(**options))
    on_cuda = device.type == "cuda"
    before = torch.cuda.memory_allocated(device) if on_cuda else resident_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    if on_cuda:
        torch.cuda.synchronize(device)
    spent = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps([torch.cuda.max_memory_allocated(device) if on_cuda else resident_peak(), before, *spent]))


if __name__ == "__main__":
    main(sys.argv[1])
