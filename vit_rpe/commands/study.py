"""Compare encodings: a grid of variants, seeds, sizes and data fractions under one recipe.

Finished cells are kept, so the same command goes on after an interruption; a cell that fails is noted and the rest
goes on. Results: results.csv (a row per run), summary.csv and summary.md, and pictures.

Options of the training command change the recipe of every cell: --data.path FOLDER, --train.epochs 1, ...
(vit-rpe train --help lists them).
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
    from vit_rpe.study.recipe import Recipes
    from vit_rpe.study.results import Results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--config", metavar="NAME", help="a shipped study such as study/digits, or a YAML file")
    add_output(parser, default=None, metavar="DIR", help="folder of the study; default: runs/study/NAME")
    parser.add_argument("--jobs", type=int, metavar="N", help="cells at a time; default: CPU cores over its threads")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN", help="cells by name: 'rope*' '*seed0'")
    text = "results of other sessions and machines: results.csv files or study folders, whose cells count as done"
    parser.add_argument("--also", nargs="+", default=[], metavar="CSV", help=text)
    parser.add_argument("--list", action="store_true", help="list the cells and whether they are done, run nothing")
    parser.add_argument("--report", action="store_true", help="write tables and pictures of what is done, run nothing")
    parser.add_argument("--launcher", choices=("local", "slurm"), default="local", help="slurm goes through submitit")
    parser.add_argument("--slurm", metavar="YAML", help="submitit parameters, for example '{timeout_min: 60}'")
    parser.pass_on(("--model.", "--data.", "--train."), _training_options)  # type: ignore[attr-defined]


def _training_options() -> list[str]:
    from vit_rpe.training.config.parse import config_keys

    return [f"--{key}" for key in config_keys() if "." in key]


def run(args: argparse.Namespace) -> int:
    """Run, list or report a study; exit status 1 if a cell failed, 2 if no study is named."""
    from vit_rpe.study.plan import cells_of, read_study
    from vit_rpe.study.recipe import Recipes
    from vit_rpe.study.results import find_results
    from vit_rpe.study.runner import cell_state, open_cells
    from vit_rpe.study.task import cell_folder

    if args.config is None:
        return _say_which()
    _check(args)
    study = read_study(args.config, args.passed_on)
    cells, all_cells = cells_of(study, args.only), cells_of(study)
    output = Path(args.output or Path("runs") / "study" / study.name)
    recipes = Recipes(study)
    results = find_results(study, all_cells, output, args.also, recipes)
    if args.list:
        for cell in cells:
            table = results.tables.get(cell.name)
            state = cell_state(study, cell, output, results)
            print(f"{state:<8}  {cell.name}{f'  ({table})' if table else ''}")
        return 0
    failed: list[str] = []
    if not args.report:
        left = open_cells(study, cells, output, results, recipes)
        output.mkdir(parents=True, exist_ok=True)
        if args.launcher == "slurm":
            from vit_rpe.study.slurm import run_on_slurm

            failed = run_on_slurm(study, left, output, recipes, parameters=args.slurm or "{}")
        else:
            jobs = args.jobs if args.jobs is not None else max(1, (os.cpu_count() or 1) // study.threads)
            failed = _run_here(study, left, output, recipes, jobs, len(cells) - len(left))
        notes = results.notes
        results = find_results(study, all_cells, output, args.also, recipes)
        results.notes = list(dict.fromkeys([*results.notes, *notes]))
    _report(study, all_cells, output, results, recipes)
    for name in failed:
        print(f"failed: {name}, see {cell_folder(output, name) / 'error.txt'}")
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
        runs = sum(cell.trained_as is None for cell in cells_of(study))
        print(
            f"  vit-rpe study --config {name:<24} {runs} runs: "
            f"{sum(variant.trained_as is None for variant in study.variants)} variants, "
            f"{len(study.seeds)} seeds, each {study.base}"
        )
    return 2


def _run_here(study: StudyConfig, cells: list[Cell], output: Path, recipes: Recipes, jobs: int, done: int) -> list[str]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from vit_rpe.study.runner import Progress as State
    from vit_rpe.study.runner import run_study

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[left]}")) as bar:
        task = bar.add_task(study.name, total=done + len(cells), left="")

        def show(state: State) -> None:
            left = "" if state.seconds_left is None else f"about {state.seconds_left / 60:.0f} min left"
            bar.update(task, completed=state.done + state.failed, left=f"{left}  {', '.join(state.running)}")
            if not bar.console.is_terminal:
                bar.console.print(f"{state.done} done, {state.failed} failed, {state.total} in all  {left}")

        return run_study(study, cells, output, recipes, jobs=jobs, done=done, report=show)


def _report(study: StudyConfig, cells: list[Cell], output: Path, results: Results, recipes: Recipes) -> None:
    from vit_rpe.study.plots import study_figures
    from vit_rpe.study.report import summarise_rows, write_tables
    from vit_rpe.study.results import report_notes

    rows = [results.rows[cell.name] for cell in cells if cell.name in results.rows]
    if not rows:
        print(f"no finished cell in {output}")
        return
    (output / "pictures").mkdir(parents=True, exist_ok=True)
    print(write_tables(study, rows, output, report_notes(study, cells, results, recipes.left_out)))
    for name, figure in study_figures(study, rows, summarise_rows(study, rows)).items():
        figure.savefig(output / "pictures" / f"{name}.png", dpi=130)
    print(f"{len(rows)} of {len(cells)} cells; tables and pictures in {output}")
