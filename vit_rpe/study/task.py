"""What the process of one cell has to do, as a file in the cell's folder: it needs nothing else of the study."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vit_rpe.plugins import loaded_plugins
from vit_rpe.study.plan import Cell, StudyConfig
from vit_rpe.study.recipe import Recipes
from vit_rpe.training.checkpoint.files import write_text

RESULT = "result.json"
TASK = "task.json"


@dataclass(frozen=True)
class Task:
    """One cell, resolved.

    Attributes:
        columns: what the results table says of the cell before anything ran.
        words: the training command line.
        eval_sizes, eval_shifts, eval_images, threads: as of the study.
        plugins: files or modules to import first.
        weights_of: folder of the cell whose weights are read; None to train.
        model_args: arguments of the model under which they are read.
    """

    columns: dict[str, Any]
    words: list[str]
    eval_sizes: tuple[int, ...]
    eval_shifts: tuple[int, ...]
    eval_images: int | None
    threads: int
    plugins: list[str]
    weights_of: str | None
    model_args: dict[str, Any]


def cell_folder(output: Path, name: str) -> Path:
    """Where the run of the cell of this name lies."""
    return output / "cells" / name


def write_task(study: StudyConfig, cell: Cell, output: Path, recipes: Recipes) -> list[str]:
    """Write the task of a cell into its folder.

    Returns:
        The words of the process that runs it.
    """
    folder = cell_folder(output, cell.name)
    task = Task(
        columns=columns_of(study, cell, recipes),
        words=[*recipes.words(cell, folder), *(f"--plugin={name}" for name in loaded_plugins())],
        eval_sizes=study.eval_sizes,
        eval_shifts=study.eval_shifts,
        eval_images=study.eval_images,
        threads=study.threads,
        plugins=list(loaded_plugins()),
        weights_of=None if cell.trained_as is None else str(cell_folder(output, cell.trained_as)),
        model_args={} if cell.trained_as is None else {"rpe": cell.variant.rpe, **cell.variant.args},
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / TASK, json.dumps(asdict(task), indent=2) + "\n")
    return [sys.executable, "-m", "vit_rpe.study.cell", str(folder)]


def columns_of(study: StudyConfig, cell: Cell, recipes: Recipes) -> dict[str, Any]:
    """What the results table says of a cell before anything ran."""
    return {
        "study": study.name,
        "label": cell.variant.label,
        "rpe": json.dumps(cell.variant.rpe),
        "args": json.dumps(cell.variant.args),
        "trained_as": cell.variant.trained_as,
        "seed": cell.seed,
        "fraction": cell.fraction,
        "img_size": json.dumps(cell.img_size),
        "recipe": json.dumps(recipes.recipe(cell)),
    }


def read_task(folder: Path) -> Task:
    """The task that :func:`write_task` wrote."""
    return Task(**json.loads((folder / TASK).read_text()))
