"""Compare encodings: a grid of variants, seeds, sizes and data fractions under one recipe.

Finished cells are kept, so the same command goes on after an interruption; a cell that fails is noted and the rest
goes on. Results: results.csv (a row per run), summary.csv and summary.md, and pictures.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.checks import check_count
from vit_rpe.commands._options import add_output

if TYPE_CHECKING:
    from vit_rpe.study.plan import Cell, StudyConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--config", metavar="NAME", help="a shipped study such as study/digits, or a YAML file")
    add_output(parser, default=None, metavar="DIR", help="folder of the study; default: runs/study/NAME")
    parser.add_argument("--jobs", type=int, metavar="N", help="cells at a time; default: CPU cores over its threads")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN", help="cells by name: 'rope*' '*seed0'")
    parser.add_argument("--list", action="store_true", help="list the cells and whether they are done, run nothing")
    parser.add_argument("--report", action="store_true", help="write tables and pictures of what is done, run nothing")
    parser.add_argument("--launcher", choices=("local", "slurm"), default="local", help="slurm goes through submitit")
    parser.add_argument("--slurm", metavar="YAML", help="submitit parameters, for example '{timeout_min: 60}'")


def run(args: argparse.Namespace) -> int:
    """Run, list or report a study; exit status 1 if a cell failed, 2 if no study is named."""
    from vit_rpe.study.plan import cells_of, read_study
    from vit_rpe.study.runner import finished_row

    if args.config is None:
        return _say_which()
    _check(args)
    study = read_study(args.config)
    cells = cells_of(study, args.only)
    output = Path(args.output or Path("runs") / "study" / study.name)
    if args.list:
        for cell in cells:
            print(f"{'done' if finished_row(output, cell) else 'open'}  {cell.name}")
        return 0
    failed: list[str] = []
    if not args.report:
        output.mkdir(parents=True, exist_ok=True)
        if args.launcher == "slurm":
            from vit_rpe.study.slurm import run_on_slurm

            failed = run_on_slurm(study, args.config, cells, output, parameters=args.slurm or "{}")
        else:
            jobs = args.jobs if args.jobs is not None else max(1, (os.cpu_count() or 1) // study.threads)
            failed = _run_here(study, args.config, cells, output, jobs)
    _report(study, cells_of(study), output)
    for name in failed:
        print(f"failed: {name}, see {output / 'cells' / name / 'error.txt'}")
    return 1 if failed else 0


def _check(args: argparse.Namespace) -> None:
    """Refuse options without effect.

    Raises:
        ValueError: names the option, and the one it contradicts.
    """
    nothing_runs = "--list" if args.list else "--report" if args.report else None
    if args.list and args.report:
        raise ValueError("--list only lists and --report only writes: give one of them")
    if args.report and args.only:
        raise ValueError("--only chooses what runs or is listed, --report is about all that is done")
    for option in ("jobs", "slurm"):
        if getattr(args, option) is not None and nothing_runs:
            raise ValueError(f"--{option} means nothing with {nothing_runs}, which runs nothing")
    if args.launcher == "slurm" and nothing_runs:
        raise ValueError(f"--launcher means nothing with {nothing_runs}, which runs nothing")
    if args.launcher == "slurm" and args.jobs is not None:
        raise ValueError("--jobs is for this machine; on a cluster --slurm '{array_parallelism: N}'")
    if args.launcher != "slurm" and args.slurm is not None:
        raise ValueError("--slurm goes with --launcher slurm")
    if args.jobs is not None:
        check_count("--jobs", args.jobs)


def _say_which() -> int:
    """Name the studies that can be run, and what each would take."""
    from vit_rpe.study.plan import cells_of, read_study
    from vit_rpe.training.config.shipped import list_configs

    print("a study trains many models: name one, see its runs with --list, start it without\n")
    for name in list_configs(studies=True):
        study = read_study(name)
        print(
            f"  vit-rpe study --config {name:<22} {len(cells_of(study))} runs: {len(study.variants)} variants, "
            f"{len(study.seeds)} seeds, each {study.base}"
        )
    return 2


def _run_here(study: StudyConfig, study_file: str, cells: list[Cell], output: Path, jobs: int) -> list[str]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from vit_rpe.study.runner import Progress as State
    from vit_rpe.study.runner import run_study

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[left]}")) as bar:
        task = bar.add_task(study.name, total=len(cells), left="")

        def show(state: State) -> None:
            left = "" if state.seconds_left is None else f"about {state.seconds_left / 60:.0f} min left"
            bar.update(task, completed=state.done + state.failed, left=f"{left}  {', '.join(state.running)}")
            if not bar.console.is_terminal:
                bar.console.print(f"{state.done} done, {state.failed} failed, {state.total} in all  {left}")

        return run_study(study, study_file, cells, output, jobs=jobs, report=show)


def _report(study: StudyConfig, cells: list[Cell], output: Path) -> None:
    from vit_rpe.study.plots import accuracy_figure, cost_figure, elsewhere_figure, learning_figure
    from vit_rpe.study.report import summarise_rows, write_tables
    from vit_rpe.study.runner import cell_folder, finished_row

    found = [(cell, row) for cell in cells if (row := finished_row(output, cell)) is not None]
    if not found:
        print(f"no finished cell in {output}")
        return
    rows = [row for _, row in found]
    print(write_tables(study, rows, output))
    summary = summarise_rows(study, rows)
    folders: dict[str, list[Path]] = {}
    for cell, _ in found:
        folders.setdefault(cell.variant.label, []).append(cell_folder(output, cell))
    figures = {
        "accuracy": accuracy_figure(study, summary),
        "cost": cost_figure(study, summary),
        "size": elsewhere_figure(study, rows, "at"),
        "shift": elsewhere_figure(study, rows, "shift"),
        "learning": learning_figure(study, folders),
    }
    (output / "pictures").mkdir(exist_ok=True)
    for name, figure in figures.items():
        if figure is not None:
            figure.savefig(output / "pictures" / f"{name}.png", dpi=130)
    print(f"{len(rows)} of {len(cells)} cells; tables and pictures in {output}")
