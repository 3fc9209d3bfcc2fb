"""One cell of a study, in a process of its own: train, evaluate elsewhere, leave ``result.json``.

Run by the study as ``python -m vit_rpe.study.cell FOLDER``, where FOLDER holds ``task.json``. What is done already is
not done again: a finished training is only evaluated at the sizes and shifts that its result lacks.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from vit_rpe.benchmark.measuring.compare import processor_name
from vit_rpe.data.images.config import image_data
from vit_rpe.evaluation.resolution_eval import accuracy_by_shift, accuracy_by_size
from vit_rpe.evaluation.trained_data import evaluate_trained
from vit_rpe.plugins import load_plugins
from vit_rpe.study.results import Row, elsewhere_columns, missing_columns, read_result
from vit_rpe.study.task import RESULT, Task, read_task
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.checkpoint.files import newest, write_text
from vit_rpe.training.checkpoint.run_folder import read_metrics
from vit_rpe.training.checkpoint.state import STATE_FILE
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.config.schema import RunConfig
from vit_rpe.training.metrics import Evaluation
from vit_rpe.training.model import plan_model
from vit_rpe.training.run import train


def run_cell(task: Task, folder: Path) -> Row:
    """Do what is left of a cell (a killed training goes on where it stopped), writing its result on the way.

    Args:
        folder: the cell's run folder; ``result.json`` in it is the row of the results table.

    Raises:
        ValueError, RuntimeError: as training and loading do.
    """
    config = parse_config(task.words, prog="study")
    for side in task.eval_sizes:  # a size that does not fit is told now and not after the training
        plan_model(replace(config.model, img_size=side), replace(image_data(config.data), img_size=None))
    weights = folder / "last" if task.weights_of is None else Path(task.weights_of) / "last"
    row = read_result(folder)
    if task.weights_of is not None:
        row = _current(row, task)
    if row is None:
        row = _trained(task, config, folder) if task.weights_of is None else _read(task, config, weights)
        _write(folder, row)
    _keep_weights_only(folder)
    missing = missing_columns(row, task.eval_sizes, task.eval_shifts, task.eval_images)
    if row.get("eval_images") != task.eval_images:
        row = {key: value for key, value in row.items() if key not in elsewhere_columns([row])}
    if missing:
        row["eval_images"] = task.eval_images
    options: dict[str, Any] = {
        "data_path": config.data.path,
        "model_args": task.model_args,
        "images": task.eval_images,
        "device": _device(config),
    }
    for kind, values, measure in (
        ("at", task.eval_sizes, accuracy_by_size),
        ("shift", task.eval_shifts, accuracy_by_shift),
    ):
        columns = {value: f"accuracy_{kind}_{value}px" for value in values}
        for value in [value for value, column in columns.items() if column in missing]:
            row[columns[value]] = 100 * measure(weights, [value], **options)[value]
            _write(folder, row)
    return row


def _trained(task: Task, config: RunConfig, folder: Path) -> Row:
    """Train, and the row of it."""
    last = newest(folder / "last")
    if last is not None and not (last / STATE_FILE).exists():  # a finished run that lost its result
        config.resume, config.overwrite = None, True
    evaluation = train(config).evaluation
    metrics = read_metrics(folder)
    return {
        **task.columns,
        "epochs": config.train.epochs,
        "parameters": _parameters(folder / "last"),
        **_measured(evaluation),
        "seconds": sum(epoch["seconds"] for epoch in metrics),
        "images_per_second": sorted(epoch["images_per_second"] for epoch in metrics)[len(metrics) // 2],
        "curve": json.dumps([round(100 * epoch["test_accuracy"], 3) for epoch in metrics]),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **_where(folder),
    }


def _read(task: Task, config: RunConfig, weights: Path) -> Row:
    """Read what another cell trained, and the row of it: what training took is that cell's."""
    source = read_result(weights.parent)
    if source is None:
        raise ValueError(f"{weights.parent} has no result yet, whose weights {task.columns['label']} reads")
    loaded = load_checkpoint(weights, model_args=task.model_args)
    measured = evaluate_trained(loaded, path=config.data.path, device=torch.device(_device(config)))
    kept = {key: value for key, value in source.items() if key not in (*elsewhere_columns([source]), "eval_images")}
    return {**kept, **task.columns, **_measured(measured.result)}


def _current(row: Row | None, task: Task) -> Row | None:
    """The row of a reading, unless its source was trained again since."""
    source = read_result(Path(str(task.weights_of)))
    return row if row is not None and source is not None and row.get("date") == source.get("date") else None


def _measured(evaluation: Evaluation) -> Row:
    return {
        "accuracy": 100 * evaluation.top1,
        "loss": evaluation.loss,
        "calibration_error": evaluation.calibration_error,
        "test_images": evaluation.count,
    }


def _where(folder: Path) -> Row:
    """When, on which machine and with which versions a cell was trained."""
    versions = json.loads((folder / "versions.json").read_text())
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else processor_name()
    return {
        "machine": f"{device}, {os.cpu_count()} cores",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": versions["python"],
        **{name: versions["packages"][name] for name in ("torch", "timm", "vit_rpe")},
        "git_revision": versions["git_revision"],
    }


def _device(config: RunConfig) -> str:
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if found is None or config.train.device == "cpu" else str(found)


def _parameters(weights: Path) -> int:
    with safe_open(weights / "model.safetensors", "pt") as file:
        return sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118 (no mapping)


def _keep_weights_only(folder: Path) -> None:
    """A finished cell needs no training state: its weights are read again at other sizes, and that is all."""
    (folder / "last" / STATE_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / "history", ignore_errors=True)


def _write(folder: Path, row: Row) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RESULT, json.dumps(row, indent=2) + "\n")


def main() -> int:
    """Read the task in the folder given and do it."""
    (folder,) = map(Path, sys.argv[1:])
    task = read_task(folder)
    load_plugins(task.plugins)
    torch.set_num_threads(task.threads)
    run_cell(task, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
