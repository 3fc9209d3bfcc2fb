"""Run the cells of a study in parallel processes; resumable, and one failing cell never stops the rest."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vit_rpe.study.plan import Cell, StudyConfig
from vit_rpe.study.recipe import Recipes
from vit_rpe.study.results import Results, missing_columns, read_result
from vit_rpe.study.task import cell_folder, write_task
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


def cell_state(study: StudyConfig, cell: Cell, output: Path, results: Results) -> str:
    """``done``, ``open``, or ``evaluate`` where only sizes or shifts are missing that were added since."""
    row = results.rows.get(cell.name)
    if row is None:
        return "open"
    if cell.name in results.tables:
        return "done"
    if cell.trained_as is not None:
        source = read_result(cell_folder(output, cell.trained_as))
        if source is not None and source.get("date") != row.get("date"):
            return "open"
    missing = missing_columns(row, study.eval_sizes, study.eval_shifts, study.eval_images)
    return "evaluate" if missing else "done"


def open_cells(
    study: StudyConfig, cells: Sequence[Cell], output: Path, results: Results, recipes: Recipes
) -> list[Cell]:
    """The cells that have something left to do, checked before the first one starts.

    A cell that reads weights of which only a table's row is here stays open, with a note.

    Raises:
        ValueError: options or a variant that are wrong, or ``cells`` that read weights which none of them trains.
    """
    left = [cell for cell in cells if cell_state(study, cell, output, results) != "done"]
    for cell in [cell for cell in left if cell.trained_as is not None]:
        source = str(cell.trained_as)
        if source in results.tables:
            left.remove(cell)
            results.notes.append(f"{cell.name} is open: of the weights it reads, {results.tables[source]} has the row.")
        elif read_result(cell_folder(output, source)) is None and source not in {cell.name for cell in left}:
            raise ValueError(f"{cell.name} reads the weights of {source}, which are not there: --only {source} too")
    checked: set[str] = set()
    for cell in left:
        if cell.variant.label not in checked:
            recipes.check(cell)
        checked.add(cell.variant.label)
    return left


def run_study(
    study: StudyConfig,
    cells: Sequence[Cell],
    output: Path,
    recipes: Recipes,
    *,
    jobs: int,
    done: int,
    report: Callable[[Progress], None],
) -> list[str]:
    """Run cells in their order, ``jobs`` at a time; one that reads another's weights waits for that one.

    A cell that was killed goes on from its last checkpoint; its process is ended when this one is interrupted.

    Args:
        done: how many cells of the study are done already.
        report: called whenever something changed.

    Returns:
        Names of the cells that failed; ``error.txt`` in their folder holds the end of what they printed.
    """
    waiting = list(cells)
    total = done + len(waiting)
    failed: list[str] = []
    running: list[_Job] = []
    durations: list[float] = []

    def tell() -> None:
        left = None
        if durations:
            left = sum(durations) / len(durations) * (len(waiting) + len(running) / 2) / max(jobs, 1)
        names = tuple(job.cell.name for job in running)
        report(Progress(done, len(failed), names, total, left))

    def next_ready() -> Cell | None:
        busy = {cell.name for cell in waiting} | {job.cell.name for job in running}
        return next((cell for cell in waiting if cell.trained_as not in busy), None)

    tell()
    try:
        while waiting or running:
            while len(running) < jobs and (cell := next_ready()) is not None:
                waiting.remove(cell)
                running.append(_Job(cell, _start(study, cell, output, recipes), time.monotonic()))
                tell()
            time.sleep(POLL_SECONDS)
            for job in [job for job in running if job.process.poll() is not None]:
                running.remove(job)
                if job.process.returncode == 0:
                    done += 1
                    durations.append(time.monotonic() - job.started)
                else:
                    failed.append(job.cell.name)
                    _note_failure(cell_folder(output, job.cell.name), job.process.returncode)
                tell()
    finally:
        for job in running:
            job.process.terminate()
            job.process.wait()
    return failed


def _start(study: StudyConfig, cell: Cell, output: Path, recipes: Recipes) -> subprocess.Popen[bytes]:
    command = write_task(study, cell, output, recipes)
    folder = cell_folder(output, cell.name)
    (folder / ERROR).unlink(missing_ok=True)
    threads = str(study.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    with (folder / "output.txt").open("wb") as printed:
        return subprocess.Popen(
            command, stdout=printed, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
        )


def _note_failure(folder: Path, code: int) -> None:
    printed = (folder / "output.txt").read_text(errors="replace").splitlines()
    write_text(folder / ERROR, "\n".join([f"exit status {code}", *printed[-20:]]) + "\n")
