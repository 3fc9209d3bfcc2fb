"""A busy neighbour: processes that keep cores busy beside a measurement, as on a machine that others use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100000))"


@contextmanager
def neighbour(processes: int | None = None) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Within it so many processes compute without a pause; they end with it, and with the process that began it.

    Args:
        processes: by default one for every core that this process may use.
    """
    count = _cores() if processes is None else processes
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield busy
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
