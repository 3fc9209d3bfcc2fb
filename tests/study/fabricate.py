"""A study with results that nobody trained."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vit_rpe.study.plan import Cell, StudyConfig, cells_of, read_study
from vit_rpe.study.recipe import Recipes
from vit_rpe.study.task import RESULT, cell_folder, columns_of
from vit_rpe.training.config.yaml_text import dump_yaml

TEXT = """
name: tiny
base: digits/vit_nano_bias
variants: [none, bias, rope, {label: yarn, trained_as: rope, rpe: {name: rope, scaling: yarn}}]
seeds: [0, 1]
eval_sizes: [8, 12]
eval_shifts: [1]
overrides: {train.epochs: 2}
"""


def study_of(folder: Path, text: str = TEXT, options: list[str] | None = None) -> StudyConfig:
    """The study of a text, written into a file."""
    file = folder / "tiny.yaml"
    file.write_text(text)
    return read_study(file, options or [])


def row_of(study: StudyConfig, cell: Cell, recipes: Recipes, **changes: Any) -> dict[str, Any]:
    """A whole row, with numbers made from the cell."""
    number = 10 * [variant.label for variant in study.variants].index(cell.variant.label) + cell.seed
    row: dict[str, Any] = {
        **columns_of(study, cell, recipes),
        "epochs": recipes.config(cell).train.epochs,
        "parameters": 1000,
        "accuracy": 50.25 + number,
        "seconds": 10.0,
        "images_per_second": 100.0 + number,
        "eval_images": study.eval_images,
        "curve": json.dumps([20.0 + number, 50.25 + number]),
        "machine": "toy, 2 cores",
        "torch": "2",
        "vit_rpe": "1",
        "date": f"day {cell.seed}",
    }
    row |= {f"accuracy_at_{size}px": 50.0 + number - size for size in study.eval_sizes}
    row |= {f"accuracy_shift_{shift}px": 40.0 + number for shift in study.eval_shifts}
    return {key: value for key, value in {**row, **changes}.items() if value is not ...}


def finish(study: StudyConfig, output: Path, recipes: Recipes, **changes: Any) -> list[Cell]:
    """Write the results of all cells, as if they had run."""
    cells = cells_of(study)
    for cell in cells:
        folder = cell_folder(output, cell.name)
        folder.mkdir(parents=True)
        if cell.trained_as is None:
            (folder / "config.yaml").write_text(dump_yaml(json.loads(json.dumps(asdict(recipes.config(cell))))))
        (folder / RESULT).write_text(json.dumps(row_of(study, cell, recipes, **changes)))
    return cells
