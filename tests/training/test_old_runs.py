"""Runs trained before the package was regrouped still load, evaluate and resume, to the same numbers.

``tests/golden/trained`` holds whole run folders written by version 0.1.0 at revision 0e5017d: one layer of width 8,
eight epochs on the digits, four on ``story.txt``. ``bias`` ended, ``shared_cut`` was stopped inside its last epoch.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.training.conftest import assert_same_state
from vit_rpe.commands import evaluate as evaluate_command
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.checkpoint.run_folder import read_metrics
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.run import train

RUNS = Path(__file__).parents[1] / "golden" / "trained"
NAMES = sorted(folder.name for folder in RUNS.iterdir() if folder.is_dir())


def _copy(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(RUNS / name, tmp_path / name))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "shared_cut"])
def test_an_old_run_evaluates_to_what_it_noted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import argparse

    monkeypatch.chdir(RUNS)
    parser = argparse.ArgumentParser()
    evaluate_command.add_arguments(parser)
    args = parser.parse_args(["--checkpoint", name, "--device", "cpu"])
    loaded = load_checkpoint(name)
    result, *_ = evaluate_command._evaluate(args, loaded)
    assert result.loss == pytest.approx(loaded.info.results["test_loss"], rel=1e-4)
    assert result.top1 == pytest.approx(loaded.info.results["test_accuracy"], abs=0.004)


def test_an_old_run_that_was_cut_ends_as_it_would_have(tmp_path: Path) -> None:
    folder = _copy("shared_cut", tmp_path)
    train(parse_config(["--resume", str(folder), "--output", str(folder), "--pictures=false"]))
    last = read_metrics(folder)[-1]
    assert last["epoch"] == 8
    assert last["train_loss"] == pytest.approx(1.4151273207231, rel=1e-3)
    assert last["test_loss"] == pytest.approx(1.2184224128723145, rel=1e-3)


def test_an_old_run_that_ended_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = _copy("bias", tmp_path)
    train(parse_config(["--resume", str(folder), "--output", str(folder), "--train.epochs=9", "--pictures=false"]))
    rows = read_metrics(folder)
    assert [row["epoch"] for row in rows] == list(range(1, 10))
    assert rows[-1]["test_loss"] < 1.25
    assert "train.epochs was 8 and is 9" in capsys.readouterr().out


def test_the_state_of_parameters_that_had_no_axis(tiny, tmp_path: Path) -> None:
    """``c`` and ``L`` of ``fire`` have one entry since; so have the optimiser's means of them in an older file."""
    for name in ("now", "old"):
        tiny(name, "--model.rpe=fire", "--train.epochs=2")
        file = tmp_path / name / "last" / "training_state.pt"
        if name == "old":
            state = torch.load(file, weights_only=True)
            names = [each for group in state["parameter_names"] for each in group]
            scalars = [each for each in names if state["model"][each].shape == (1,) and ".rpe." in each]
            assert len(scalars) >= 2
            for each in scalars:
                state["model"][each] = state["model"][each].reshape(())
                moments = state["optimizer"]["state"][names.index(each)]
                moments |= {key: value.reshape(()) for key, value in moments.items() if key != "step"}
            torch.save(state, file)
        tiny(name, "--model.rpe=fire", "--train.epochs=3", "--resume=auto")
    assert_same_state(tmp_path / "now", tmp_path / "old")
