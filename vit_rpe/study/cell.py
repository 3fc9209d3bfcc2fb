"""One cell of a study, in a process of its own: train, evaluate elsewhere, leave ``result.json``.

Run by the study as ``python -m vit_rpe.study.cell STUDY CELL FOLDER PLUGIN ...``.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from vit_rpe.data.images.config import image_data
from vit_rpe.evaluation.resolution_eval import accuracy_by_shift, accuracy_by_size
from vit_rpe.plugins import load_plugins, loaded_plugins
from vit_rpe.study.plan import Cell, StudyConfig, cells_of, read_study
from vit_rpe.training.checkpoint.files import write_text
from vit_rpe.training.checkpoint.run_folder import read_metrics
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.model import plan_model
from vit_rpe.training.run import train

RESULT = "result.json"


def run_cell(study: StudyConfig, cell: Cell, folder: Path) -> dict[str, Any]:
    """Train one cell (going on where a killed one stopped) and write its result.

    Args:
        folder: the cell's run folder; ``result.json`` appears in it when everything is done.

    Returns:
        The row of the results table.

    Raises:
        ValueError, RuntimeError: as training does.
    """
    started = time.perf_counter()
    plugins = [f"--plugin={name}" for name in loaded_plugins()]
    config = parse_config([*cell.words(study, folder), *plugins], prog="study")
    for side in study.eval_sizes:  # a size that does not fit is told now and not after the training
        plan_model(replace(config.model, img_size=side), replace(image_data(config.data), img_size=None))
    evaluation = train(config).evaluation
    seconds = time.perf_counter() - started
    metrics = read_metrics(folder)
    versions = json.loads((folder / "versions.json").read_text())
    row = {
        "study": study.name,
        "label": cell.variant.label,
        "rpe": json.dumps(cell.variant.rpe),
        "args": json.dumps(cell.variant.args),
        "seed": cell.seed,
        "fraction": cell.fraction,
        "img_size": json.dumps(cell.img_size),
        "epochs": config.train.epochs,
        "parameters": _parameters(folder),
        "accuracy": 100 * evaluation.top1,
        "loss": evaluation.loss,
        "calibration_error": evaluation.calibration_error,
        "test_images": evaluation.count,
        "seconds": seconds,
        "images_per_second": sorted(epoch["images_per_second"] for epoch in metrics)[len(metrics) // 2],
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "torch": versions["packages"]["torch"],
        "timm": versions["packages"]["timm"],
        "vit_rpe": versions["packages"]["vit_rpe"],
        "git_revision": versions["git_revision"],
    }
    last = folder / "last"
    for size, top1 in accuracy_by_size(last, study.eval_sizes).items():
        row[f"accuracy_at_{size}px"] = 100 * top1
    for shift, top1 in accuracy_by_shift(last, study.eval_shifts).items():
        row[f"accuracy_shift_{shift}px"] = 100 * top1
    write_text(folder / RESULT, json.dumps(row, indent=2) + "\n")
    return row


def _parameters(folder: Path) -> int:
    with safe_open(folder / "last" / "model.safetensors", "pt") as weights:
        return sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118 (no mapping)


def main() -> int:
    """Find the cell by its name in the study and run it."""
    study_file, name, folder, *plugins = sys.argv[1:]
    load_plugins(plugins)
    study = read_study(study_file)
    torch.set_num_threads(study.threads)
    (cell,) = [cell for cell in cells_of(study) if cell.name == name]
    run_cell(study, cell, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
