"""Run the cells of a study in parallel processes; resumable, and one failing cell never stops the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vit_rpe.plugins import loaded_plugins
from vit_rpe.study.cell import RESULT
from vit_rpe.study.plan import Cell, StudyConfig
from vit_rpe.training.checkpoint.files import write_text

ERROR = "error.txt"
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Progress:
    """Where a study stands. ``seconds_left`` is None until a cell of this call has finished."""

    done: int
    failed: int
    running: tuple[str, ...]
    total: int
    seconds_left: float | None


@dataclass
class _Job:
    cell: Cell
    process: subprocess.Popen[bytes]
    started: float


def cell_folder(output: Path, cell: Cell) -> Path:
    """Where a cell's run lies."""
    return output / "cells" / cell.name


def finished_row(output: Path, cell: Cell) -> dict[str, Any] | None:
    """The result of a finished cell, None if it has none; a damaged file counts as none."""
    try:
        return json.loads((cell_folder(output, cell) / RESULT).read_text())
    except (OSError, json.JSONDecodeError):
        return None


def run_study(
    study: StudyConfig,
    study_file: str,
    cells: Sequence[Cell],
    output: Path,
    *,
    jobs: int,
    report: Callable[[Progress], None],
) -> list[str]:
    """Run every cell that has no result yet, ``jobs`` at a time.

    A cell that was killed goes on from its last checkpoint; its process is ended when this one is interrupted.

    Args:
        study_file: name or file of the study, for the cells' processes.
        report: called whenever something changed.

    Returns:
        Names of the cells that failed; ``error.txt`` in their folder holds the end of what they printed.
    """
    waiting = [cell for cell in cells if finished_row(output, cell) is None]
    done = len(cells) - len(waiting)
    failed: list[str] = []
    running: list[_Job] = []
    durations: list[float] = []

    def tell() -> None:
        left = None
        if durations:
            left = sum(durations) / len(durations) * (len(waiting) + len(running) / 2) / max(jobs, 1)
        names = tuple(job.cell.name for job in running)
        report(Progress(done, len(failed), names, len(cells), left))

    tell()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running.append(_Job(cell, _start(study, study_file, cell, output), time.monotonic()))
                tell()
            time.sleep(POLL_SECONDS)
            for job in [job for job in running if job.process.poll() is not None]:
                running.remove(job)
                if finished_row(output, job.cell) is not None:
                    done += 1
                    durations.append(time.monotonic() - job.started)
                else:
                    failed.append(job.cell.name)
                    _note_failure(cell_folder(output, job.cell), job.process.returncode)
                tell()
    finally:
        for job in running:
            job.process.terminate()
            job.process.wait()
    return failed


def cell_command(study_file: str, cell: Cell, folder: Path) -> list[str]:
    """The words of a process that runs one cell; it imports the plug-ins that are imported here."""
    return [sys.executable, "-m", "vit_rpe.study.cell", study_file, cell.name, str(folder), *loaded_plugins()]


def _start(study: StudyConfig, study_file: str, cell: Cell, output: Path) -> subprocess.Popen[bytes]:
    folder = cell_folder(output, cell)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ERROR).unlink(missing_ok=True)
    threads = str(study.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    with (folder / "output.txt").open("wb") as printed:
        return subprocess.Popen(
            cell_command(study_file, cell, folder),
            stdout=printed,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
        )


def _note_failure(folder: Path, code: int) -> None:
    printed = (folder / "output.txt").read_text(errors="replace").splitlines()
    write_text(folder / ERROR, "\n".join([f"exit status {code}", *printed[-20:]]) + "\n")
