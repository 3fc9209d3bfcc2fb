"""Text through the one training loop: a language model and a classifier, their commands, and extrapolation."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from accelerate.state import AcceleratorState, GradientState, PartialState

from vit_rpe.cli import main
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.run import RunResult, train

TEXT = "def f(x):\n    return x + 1\n\nclass A:\n    def g(self, y):\n        return f(y)\n\n"
SIZES = ["--model.args={embed_dim: 16, depth: 2, num_heads: 2}", "--train.epochs=2", "--train.warmup_epochs=1"]


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> Iterator[None]:
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(10):
        place = folder / ("upper" if number % 2 else "lower")
        place.mkdir(exist_ok=True)
        (place / f"{number}.txt").write_text((TEXT.upper() if number % 2 else TEXT) * 6)
    return folder


def run(folder: Path, corpus: Path, config: str, *words: str) -> RunResult:
    options = [f"--config={config}", f"--data.path={corpus}", f"--output={folder}", "--data.length=12"]
    return train(parse_config([*options, "--data.val_fraction=0.4", "--data.batch_size=7", *SIZES, *words]))


def run_lm(folder: Path, corpus: Path, *words: str) -> RunResult:
    return run(folder, corpus, "text/char_lm_t5", "--data.windows=61", "--data.val_characters=300", *words)


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_language_model(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "relative"
    result = run_lm(folder, corpus)
    shown = capsys.readouterr().out
    assert "sample        (after the bar" in shown
    assert f"validation bits per character: {result.evaluation.bits:.3f}" in shown
    metrics = rows_of(folder / "metrics.csv")
    bits = [float(row["test_bits_per_character"]) for row in metrics]
    assert bits[-1] == pytest.approx(result.evaluation.bits)
    assert bits[-1] < bits[0]

    assert main(["evaluate", "--checkpoint", str(folder), "--json"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert evaluated["bits_per_character"] == pytest.approx(min(bits), rel=1e-6)
    assert (evaluated["length"], evaluated["count"]) == (12, 288)

    absolute = tmp_path / "absolute"
    run_lm(absolute, corpus, "--model.rpe=none", "--model.args.pos_embed=learned")
    words = ["extrapolate", "--checkpoint", str(folder), str(absolute / "best"), "--output", str(tmp_path / "p.png")]
    assert main([*words, "--without-position", "--factors", "0.5", "1", "4"]) == 0
    rows = rows_of(tmp_path / "p.csv")
    found = {(row["label"], float(row["factor"])): float(row["result"]) for row in rows}
    assert found["relative", 1.0] == pytest.approx(min(bits), rel=1e-6)
    assert found["relative without position", 1.0] != pytest.approx(found["relative", 1.0], rel=1e-6)
    assert ("relative", 4.0) in found
    assert ("absolute", 4.0) not in found, "learned positions end at the trained length"
    assert ("absolute without position", 4.0) in found
    assert (tmp_path / "p.png").stat().st_size > 5000
    assert main([*words, "--resample", "absolute", "--factors", "1", "4"]) == 0
    found = {(row["label"], float(row["factor"])) for row in rows_of(tmp_path / "p.csv")}
    assert found == {("relative", 1.0), ("relative", 4.0), ("absolute", 1.0)} | {
        ("absolute resampled", factor) for factor in (1.0, 4.0)
    }
    capsys.readouterr()
    assert main([*words, "--resample", "relativ"]) == 1
    assert "did you mean 'relative'" in capsys.readouterr().err


def test_resume_goes_on_with_the_best(tmp_path: Path, corpus: Path) -> None:
    straight = run_lm(tmp_path / "straight", corpus)
    run_lm(tmp_path / "stopped", corpus, "--train.epochs=1", "--train.schedule=constant")
    again = run_lm(tmp_path / "stopped", corpus, "--train.schedule=constant", "--resume=auto")
    whole = run_lm(tmp_path / "whole", corpus, "--train.schedule=constant")
    assert again.evaluation.loss == whole.evaluation.loss
    assert straight.evaluation.loss != whole.evaluation.loss


def test_classifier(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture) -> None:
    result = run(tmp_path / "run", corpus, "text/passages_bias", "--data.split_seed=1")
    assert result.evaluation.top1 > 0.9
    assert main(["evaluate", "--checkpoint", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "lower" in shown
    assert f"validation accuracy: {100 * result.evaluation.top1:.1f} %" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.name=vit_rpe_nano_patch2_8"], "takes images, which data.name text does not give"),
        (
            ["--config=digits/vit_nano_bias", "--model.name=rpe_sequence_nano"],
            "takes token sequences, which data.name digits",
        ),
        (["--model.args={causal: false}"], "must not hold 'causal': it comes from the data"),
        (["--model.img_size=8"], "takes token sequences"),
        (["--train.distill.teacher=vit_rpe_nano_patch2_8"], "teaches on images"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, corpus: Path, words: list[str], message: str) -> None:
    if not words[0].startswith("--config"):
        words = ["--config=text/char_lm_t5", f"--data.path={corpus}", "--data.length=12", *words]
    with pytest.raises(ValueError, match=message):
        train(parse_config([*words, f"--output={tmp_path / 'run'}", "--data.val_fraction=0.4"]))


def test_commands_for_images_refuse_text(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture) -> None:
    run_lm(tmp_path / "run", corpus, "--train.epochs=1", "--train.warmup_epochs=0")
    (tmp_path / "picture.png").write_bytes(b"")
    assert main(["predict", "--checkpoint", str(tmp_path / "run"), str(tmp_path / "picture.png")]) == 1
    assert "takes text, not images" in capsys.readouterr().err
