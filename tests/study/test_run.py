"""A small real study: run, kill, resume, a failing cell, tables and pictures."""

import csv
import os
import signal
import subprocess
import sys
import time

import pytest

from vit_rpe.cli import main
from vit_rpe.study.cell import run_cell
from vit_rpe.study.plan import cells_of, read_study
from vit_rpe.study.recipe import Recipes
from vit_rpe.study.results import read_result
from vit_rpe.study.task import cell_folder, read_task, write_task

TEXT = """
name: tiny
base: digits/vit_nano_bias
variants: [none, rope, {label: yarn, trained_as: rope, rpe: {name: rope, scaling: yarn}}]
seeds: [0]
fractions: [0.2]
eval_sizes: [8, 12]
eval_shifts: [1]
overrides: {train.epochs: 1, train.warmup_epochs: 0, model.name: vit_rpe_nano_patch4_32, model.img_size: 8}
"""

COLUMNS = [
    *("study", "label", "rpe", "args", "trained_as", "seed", "fraction", "img_size", "epochs", "parameters"),
    *("accuracy", "loss", "calibration_error", "test_images", "seconds", "images_per_second", "peak_memory_mb"),
    *("accuracy_at_8px", "accuracy_at_12px", "accuracy_shift_1px", "curve", "machine", "date", "python"),
    *("torch", "timm", "vit_rpe", "git_revision", "recipe"),
]


def _study(folder, text=TEXT):
    file = folder / "tiny.yaml"
    file.write_text(text)
    return str(file)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_study_survives_a_kill_grows_and_reports(tmp_path, capsys):
    file, output = _study(tmp_path), tmp_path / "out"
    words = ["study", "--config", file, "--output", str(output), "--jobs", "2"]
    command = [sys.executable, "-m", "vit_rpe.cli", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 600
    while not list(output.glob("cells/*/result.json")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in output.glob("cells/*/last/model.safetensors")}
    broken = next(output.glob("cells/*/result.json"))
    broken.write_text('{"label": "none", "acc')  # of a cell whose training state may be gone: trained again
    assert main(words) == 0
    for path, changed in kept.items():
        assert path.stat().st_mtime_ns == changed or path.parent.parent == broken.parent

    with (output / "results.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert list(rows[0]) == COLUMNS
    assert [(row["label"], row["trained_as"]) for row in rows] == [("none", ""), ("rope", ""), ("yarn", "rope")]
    assert float(rows[0]["accuracy_at_8px"]) == pytest.approx(float(rows[0]["accuracy"]), abs=1e-3)
    assert rows[2]["accuracy"] == rows[1]["accuracy"]  # scaling changes nothing at the trained size
    assert (output / "pictures" / "size.png").is_file()
    assert not list(output.glob("cells/*/last/training_state.pt"))
    assert not (output / "cells" / "yarn-f0.2-seed0" / "last").exists()
    summary = (output / "summary.md").read_text()
    assert summary.count("| `rope` |") == 2
    assert "| encoding | at 8 px | at 12 px | shift 1 px |" in summary

    kept = {path: path.stat().st_mtime_ns for path in output.glob("cells/*/last/model.safetensors")}
    _study(tmp_path, TEXT.replace("[8, 12]", "[8, 12, 16]"))
    capsys.readouterr()
    assert main([*words[:-2], "--list"]) == 0
    assert capsys.readouterr().out.count("evaluate  ") == 3
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert "| at 16 px |" in (output / "summary.md").read_text()


@pytest.mark.slow
def test_a_failing_cell_does_not_stop_the_rest(tmp_path, capsys):
    file, output = _study(tmp_path), tmp_path / "out"
    (output / "cells" / "none-f0.2-seed0" / "log.txt").mkdir(parents=True)  # no log can be written there
    words = ["--config", file, "--output", str(output), "--only", "none*", "rope*", "--jobs", "1"]
    assert main(["study", *words]) == 1
    assert "failed: none-f0.2-seed0" in capsys.readouterr().out
    assert "log.txt" in (output / "cells" / "none-f0.2-seed0" / "error.txt").read_text()
    assert read_result(cell_folder(output, "rope-f0.2-seed0"))["label"] == "rope"


def test_what_cannot_work_is_told_before_anything_is_trained(tmp_path, capsys):
    text = TEXT.replace("variants: [none,", "variants: [{label: none, rpe: rope, args: {num_heads: 32}},")
    assert main(["study", "--config", _study(tmp_path, text), "--output", str(tmp_path / "out")]) == 1
    assert "variant none of tiny: rope turns pairs of channels" in capsys.readouterr().err
    study = read_study(_study(tmp_path, TEXT.replace("eval_sizes: [8, 12]", "eval_sizes: [8, 14]")))
    write_task(study, cells_of(study)[0], tmp_path, Recipes(study))
    folder = cell_folder(tmp_path, "none-f0.2-seed0")
    with pytest.raises(ValueError, match="divisible by the patch, got img_size"):
        run_cell(read_task(folder), folder)
    assert [path.name for path in folder.iterdir()] == ["task.json"]
