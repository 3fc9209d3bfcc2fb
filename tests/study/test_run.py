"""A small real study: run, kill, resume, a failing cell, tables and pictures."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from vit_rpe.cli import main
from vit_rpe.study.cell import run_cell
from vit_rpe.study.plan import cells_of, read_study
from vit_rpe.study.runner import ERROR, cell_folder, finished_row, run_study

TEXT = """
name: tiny
base: digits/vit_nano_bias
variants: [none, {label: bias, rpe: bias}]
seeds: [0, 1]
fractions: [0.2]
eval_sizes: [8, 12]
eval_shifts: [1]
overrides: {train.epochs: 1, train.warmup_epochs: 0, model.name: vit_rpe_nano_patch4_32, model.img_size: 8}
"""

COLUMNS = [
    *("study", "label", "rpe", "args", "seed", "fraction", "img_size", "epochs", "parameters", "accuracy", "loss"),
    *("calibration_error", "test_images", "seconds", "images_per_second", "peak_memory_mb"),
    *("torch", "timm", "vit_rpe", "git_revision", "accuracy_at_8px", "accuracy_at_12px", "accuracy_shift_1px"),
]


def _study(folder, text=TEXT):
    file = folder / "tiny.yaml"
    file.write_text(text)
    return str(file)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_2x2_study_survives_a_kill_and_reports(tmp_path, capsys):
    file, output = _study(tmp_path), tmp_path / "out"
    command = [sys.executable, "-m", "vit_rpe.cli", "study", "--config", file, "--output", str(output), "--jobs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 600
    while not list(output.glob("cells/*/result.json")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in output.glob("cells/*/result.json")}
    assert 1 <= len(kept) < 4

    broken = next(iter(kept))
    if len(kept) > 1:
        broken.write_text('{"label": "none", "acc')
    assert main(["study", "--config", file, "--output", str(output), "--jobs", "2"]) == 0
    for path, changed in kept.items():
        assert (path.stat().st_mtime_ns == changed) or path == broken

    with (output / "results.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert list(rows[0]) == COLUMNS
    assert sorted((row["label"], row["seed"]) for row in rows) == [
        *(("bias", "0"), ("bias", "1")),
        *(("none", "0"), ("none", "1")),
    ]
    assert float(rows[0]["accuracy_at_8px"]) == pytest.approx(float(rows[0]["accuracy"]))
    assert {path.name for path in (output / "pictures").iterdir()} == {
        *("accuracy.png", "cost.png", "size.png", "shift.png", "learning.png"),
    }
    summary = (output / "summary.md").read_text()
    assert "| `bias` | 2 |" in summary
    assert "| encoding | at 8 px | at 12 px | shift 1 px |" in summary
    assert summary.count("| `bias` |") == 2
    capsys.readouterr()
    main(["study", "--config", file, "--output", str(output), "--list"])
    assert capsys.readouterr().out.count("done  ") == 4


@pytest.mark.slow
def test_a_failing_cell_does_not_stop_the_rest(tmp_path, capsys):
    text = TEXT.replace("variants: [none,", "variants: [{label: none, rpe: rope, args: {num_heads: 32}},")
    file, output = _study(tmp_path, text), tmp_path / "out"
    assert main(["study", "--config", file, "--output", str(output), "--only", "*seed0", "--jobs", "1"]) == 1
    assert "failed: none-f0.2-seed0" in capsys.readouterr().out
    failed, good = cells_of(read_study(file), ["none-f0.2-seed0", "bias-f0.2-seed0"])
    assert "head_dim must be divisible by 4" in (cell_folder(output, failed) / ERROR).read_text()
    assert finished_row(output, good)["label"] == "bias"


def test_a_size_that_does_not_fit_is_told_before_the_training(tmp_path):
    study = read_study(_study(tmp_path, TEXT.replace("eval_sizes: [8, 12]", "eval_sizes: [8, 14]")))
    with pytest.raises(ValueError, match="divisible by the patch, got img_size"):
        run_cell(study, cells_of(study)[0], tmp_path / "cell")
    assert not (tmp_path / "cell").exists()


def test_progress_counts_finished_cells(tmp_path):
    study = read_study(_study(tmp_path))
    cells = cells_of(study)
    for cell in cells:
        folder = cell_folder(tmp_path, cell)
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({"label": cell.variant.label}))
    seen = []
    assert run_study(study, "unused", cells, tmp_path, jobs=1, report=seen.append) == []
    assert [(state.done, state.total) for state in seen] == [(4, 4)]
