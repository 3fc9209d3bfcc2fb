"""What a person sees while a run works: progress at once and every half minute, signals, names of what is measured."""

from __future__ import annotations

import csv
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import assert_same_state, in_child, state_of
from vit_rpe.training import loop
from vit_rpe.training.metrics import evaluate
from vit_rpe.training.reporting import display as display_module
from vit_rpe.training.reporting.trackers import log_pictures

MICRO = ("--train.epochs=2", "--train.accumulate=4", "--data.batch_size=8", "--data.eval_batch_size=20")


def test_a_log_shows_progress_at_once_and_every_half_minute(tiny, tmp_path: Path, capsys, monkeypatch) -> None:
    """Time stands still but for ten seconds at every look at the clock."""
    now = [0.0]

    def clock() -> float:
        now[0] += 10
        return now[0]

    monkeypatch.setattr(display_module.time, "monotonic", clock)
    tiny("run", *MICRO)
    shown = [line for line in capsys.readouterr().out.splitlines() if "  update " in line or " batch " in line]
    assert len(shown) > 4
    assert shown[0].startswith("epoch 1/2  update 0/6  loss ")
    assert "images/s" in shown[0]
    assert any("left" in line for line in shown[1:])
    assert any("  test batch " in line for line in shown)
    kept = (tmp_path / "run" / "log.txt").read_text()
    assert all(line in kept for line in shown)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("when", ["inside an update", "in an evaluation"])
def test_a_signal_is_taken_at_the_next_piece_of_work(tiny, tmp_path: Path, number, when: str) -> None:
    from tests.training.conftest import TINY
    from vit_rpe.commands import train as train_command

    tiny("unbroken", *MICRO)
    inside = when == "inside an update"

    def work() -> int:
        name, count = ("_loss" if inside else "_between_evaluations"), 0
        before = getattr(loop, name)

        def signalled(*args):
            nonlocal count
            count += 1
            if count == (14 if inside else 3):
                os.kill(os.getpid(), number)
            return before(*args)

        setattr(loop, name, signalled)
        with open(tmp_path / "errors", "w") as errors:
            os.dup2(errors.fileno(), 2)
            return train_command.main([*TINY, *MICRO, f"--output={tmp_path / 'run'}"])

    assert in_child(work) == 128 + number
    assert f"{number.name}: the batch at hand is finished and the state saved" in (tmp_path / "errors").read_text()
    counters = state_of(tmp_path / "run")["counters"]
    assert (counters["epoch"], counters["step"]) == ((0, 3) if inside else (0, 6))
    tiny("run", *MICRO, "--resume=auto")
    assert_same_state(tmp_path / "unbroken", tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(tmp_path: Path, number) -> None:
    from vit_rpe.training.interrupt import Interrupt

    def work() -> int:
        with open(tmp_path / "errors", "w") as errors:
            os.dup2(errors.fileno(), 2)
        with Interrupt() as interrupt:
            os.kill(os.getpid(), number)
            assert interrupt.received == number
            try:
                os.kill(os.getpid(), number)
            except KeyboardInterrupt:
                return 5
        return 6

    assert in_child(work) == 5
    assert "again: stopped" in (tmp_path / "errors").read_text()


def test_accuracy_on_mixed_images_is_called_so(tiny, tmp_path: Path, capsys) -> None:
    tiny("run", "--train.epochs=1", "--data.mixup=0.4", "--pictures=true")
    assert "train on mixed images " in capsys.readouterr().out
    with (tmp_path / "run" / "metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert "train_accuracy_on_mixed_images" in row
    assert "train_accuracy" not in row
    tiny("run", "--train.epochs=2", "--data.mixup=0", "--resume=auto", "--pictures=true")
    from vit_rpe.training.checkpoint.run_folder import read_metrics
    from vit_rpe.viz import plot_curves

    first, second = read_metrics(tmp_path / "run")
    assert "train_accuracy_on_mixed_images" in first
    assert "train_accuracy" in second
    drawn = plot_curves([first, second], held_out="validation")
    names = [text.get_text() for axes in drawn.axes for text in axes.texts]
    assert "training, on mixed images" in names
    assert "validation" in names


@pytest.mark.parametrize(("word", "shown"), [("test", "test accuracy:"), ("validation", "validation accuracy:")])
def test_the_split_has_one_name(tiny, tmp_path: Path, capsys, monkeypatch, word: str, shown: str) -> None:
    from dataclasses import replace

    from vit_rpe.training import run as run_module

    build = run_module.build_data
    monkeypatch.setattr(run_module, "build_data", lambda *args, **more: replace(build(*args, **more), held_out=word))
    tiny("run", "--train.epochs=1")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(shown)
    assert any(line.startswith("epoch   1/1") and f"  {word} " in line for line in lines)
    assert any(f"(chosen on the {word} images themselves)" in line for line in lines)


def test_pictures_during_training(tiny, tmp_path: Path, monkeypatch) -> None:
    sent = []
    monkeypatch.setattr(loop, "log_pictures", lambda accelerator, pictures, step: sent.append((step, pictures)))
    tiny("run", "--train.epochs=2", "--train.pictures_every=1")
    folder = tmp_path / "run" / "pictures"
    assert sorted(path.name for path in folder.iterdir()) == ["epoch-0001", "epoch-0002"]
    names = {"attention_images.png", "attention_layers.png", "bias.png"}
    assert {path.name for path in (folder / "epoch-0002").iterdir()} == names | {"position.safetensors"}
    tables = load_file(folder / "epoch-0002" / "position.safetensors")
    assert tables
    assert all(".rpe." in name for name in tables)
    assert [step for step, _ in sent] == [1, 2]
    for pixels in sent[1][1].values():
        assert (pixels.dtype, pixels.ndim, pixels.shape[2]) == (np.uint8, 3, 3)
        assert pixels.std() > 1
    assert not np.array_equal(sent[0][1]["bias"], sent[1][1]["bias"])


def test_pictures_go_to_every_tracker_in_its_way() -> None:
    pixels = np.zeros((4, 6, 3), dtype=np.uint8)
    board, weights = Mock(), Mock()
    board.name, weights.name = "tensorboard", "wandb"
    log_pictures(SimpleNamespace(trackers=[board, weights]), {"bias": pixels}, step=3)  # type: ignore[arg-type]
    board.writer.add_image.assert_called_once_with("bias", pixels, 3, dataformats="HWC")
    weights.log_images.assert_called_once_with({"bias": [pixels]}, step=3)


def test_pictures_of_text_are_refused_before_training(tmp_path: Path) -> None:
    from tests.training.test_old_runs import RUNS
    from vit_rpe.training.config.parse import parse_config
    from vit_rpe.training.run import train

    words = ["--config=text/char_lm_none", f"--data.path={RUNS / 'story.txt'}", "--data.length=16"]
    with pytest.raises(ValueError, match=r"train\.pictures_every draws attention over images"):
        train(parse_config([*words, "--train.pictures_every=1", f"--output={tmp_path / 'run'}"]))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([], 3, "nothing was evaluated"),
        ([[-100, -100]], 3, "labels lie between -100 and -100, the model has the classes 0 to 2"),
        ([[0, 3]], 3, "labels lie between 0 and 3"),
        ([[0, 0]], 1, "nothing can be evaluated with 1 class"),
    ],
)
def test_an_evaluation_of_nothing_is_said_in_our_words(labels: list, classes: int, message: str) -> None:
    batches = [(torch.zeros(len(row), 4), torch.tensor(row)) for row in labels]
    with pytest.raises(ValueError, match=message):
        evaluate(
            torch.nn.Linear(4, classes),
            batches,
            prepare=lambda inputs: inputs,
            num_classes=classes,
            device=torch.device("cpu"),
        )


def test_tokens_are_counted(tiny, tmp_path: Path, capsys) -> None:
    tiny("run", "--train.epochs=1")
    said = capsys.readouterr().out
    assert "4x4 = 16 tokens\n" in said
    assert "times to" not in said
    tiny("big", "--train.epochs=1", "--data.fraction=0.03", "--model.img_size=66")
    said = capsys.readouterr().out
    assert "33x33 = 1,089 tokens (many: each layer compares 1,185,921 pairs" in said
    assert "warning: the images are 8x8 pixels (the first one) and are enlarged 8.2 times to 66x66" in said
