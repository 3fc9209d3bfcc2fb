"""Where the time of an encoding goes: operations of torch, beside those of the same model without position."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity

from vit_rpe.benchmark.candidates.jobs import Job, callable_of


class Operation(NamedTuple):
    """How long and how often one torch operation ran during one call of a job."""

    microseconds: float
    calls: float


def profile(jobs: Mapping[str, Job], *, rounds: int) -> dict[str, dict[str, Operation]]:
    """Time spent in each operation itself, by job: the median over calls that take turns.

    The profiler adds about a microsecond to every operation, and does not see the time between them.

    Raises:
        ValueError: a job on another device than the CPU, or a compiled one.
    """
    if any(job.device != "cpu" or job.compiled for job in jobs.values()):
        raise ValueError("--profile is for eager models on the CPU")
    work = {name: callable_of(job)[0] for name, job in jobs.items()}
    found: dict[str, dict[str, list[Operation]]] = {name: defaultdict(list) for name in jobs}
    for run in work.values():
        run()
    for _ in range(rounds):
        for name, run in work.items():
            with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as seen:
                run()
            for event in seen.key_averages():
                found[name][event.key].append(Operation(event.self_cpu_time_total, event.count))
    return {
        name: {
            key: Operation(median(one.microseconds for one in ones), median(one.calls for one in ones))
            for key, ones in operations.items()
        }
        for name, operations in found.items()
    }


def profile_table(found: Mapping[str, Mapping[str, Operation]], reference: str, *, rows: int = 12) -> str:
    """Markdown: what each job spends beyond the reference, by operation; the largest differences first."""
    base = found[reference]
    names = [name for name in found if name != reference]
    nothing = Operation(0.0, 0.0)

    def more(name: str, key: str) -> float:
        return found[name].get(key, nothing).microseconds - base.get(key, nothing).microseconds

    keys = sorted({key for name in names for key in found[name]}, key=lambda key: -max(more(n, key) for n in names))
    lines = [f"| operation | {reference} | {' | '.join(names)} |", f"|---|---:|{'---:|' * len(names)}"]
    for key in keys[:rows]:
        cells = [f"{more(name, key):+.0f} us" for name in names]
        lines.append(f"| `{key}` | {base.get(key, nothing).microseconds:.0f} us | {' | '.join(cells)} |")
    totals = {name: sum(one.microseconds for one in found[name].values()) for name in found}
    counts = {name: sum(one.calls for one in found[name].values()) for name in found}
    cells = [f"{totals[name] - totals[reference]:+.0f} us" for name in names]
    lines.append(f"| **all operations** | {totals[reference]:.0f} us | {' | '.join(cells)} |")
    cells = [f"{counts[name] - counts[reference]:+.0f}" for name in names]
    lines.append(f"| **calls** | {counts[reference]:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)
