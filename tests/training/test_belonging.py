"""A checkpoint goes on only with the model, the optimiser and the data it is of; what is refused changes no file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.training.conftest import state_of
from vit_rpe.cli import main
from vit_rpe.training.checkpoint.belonging import (
    check_classes,
    check_config_of_state,
    check_vocabulary,
    check_weights_of_state,
)
from vit_rpe.training.checkpoint.run_folder import read_metrics
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.run import train


def _everything(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != "log.txt"}


@pytest.fixture
def refused(tiny: Callable[..., Any], tmp_path: Path) -> Callable[..., str]:
    """Go on with a run in other words, which must be refused and leave the run folder as it was."""

    def ask(*words: str) -> str:
        before = _everything(tmp_path / "run")
        with pytest.raises(ValueError) as caught:
            tiny("run", *words, "--train.epochs=2", "--resume=auto")
        assert _everything(tmp_path / "run") == before
        return str(caught.value)

    return ask


ANOTHER = {
    "--train.optimizer=sgd": "another optimiser: train.optimizer was 'adamw', is 'sgd'",
    "--train.optimizer=muon": "another optimiser: train.optimizer was 'adamw', is 'muon'",
    "--model.name=vit_rpe_tiny_patch4_32": "model.name was 'vit_rpe_nano_patch2_8', is 'vit_rpe_tiny_patch4_32'",
    "--model.rpe=alibi": "is 'alibi'",
    "--model.rpe=[rope, alibi]": "is ['rope', 'alibi']",
    "--model.args.depth=2": "model.args.depth was 3, is 2",
    "--model.args.num_heads=2": "model.args.num_heads was 3, is 2",
    "--model.img_size=12": "has the shape",
    "--model.img_size=[8, 10]": "model.img_size was None, is [8, 10]",
    "--train.ema_decay=0.9": "made without ema: check train.ema_decay, which was None and is 0.9",
}


def test_another_model_or_optimiser_is_refused(tiny, refused, tmp_path: Path) -> None:
    words = "--model.args.pos_embed=learned"
    tiny("run", words, "--train.epochs=1")
    for word, message in ANOTHER.items():
        assert message in refused(words, word), word
    assert "to start another one from its weights: --model.checkpoint" in refused("--model.rpe=rope").lower()


@pytest.mark.parametrize(
    "words",
    [
        ["--train.lr=0.002", "--train.weight_decay=0.3", "--train.betas=[0.8,0.9]", "--train.clip_grad=1"],
        ["--data.batch_size=16", "--train.accumulate=2", "--train.label_smoothing=0"],
        ["--train.schedule=constant", "--train.optimizer=AdamW", "--model.args.drop_path_rate=0.3"],
        ["--model.rpe={name: bias}", "--model.args.attn_impl=eager"],
        ["--model.rpe=[bias]", "--train.layer_decay=0.5", "--train.position_lr=2"],
    ],
)
def test_what_may_change_goes_on(tiny, tmp_path: Path, words: list[str]) -> None:
    tiny("run", "--model.rpe=bias", "--train.epochs=1")
    tiny("run", "--model.rpe=bias", *words, "--train.epochs=2", "--resume=auto")
    assert len(read_metrics(tmp_path / "run")) == 2


def test_positions_without_a_table_go_on_at_another_size(tiny, tmp_path: Path) -> None:
    tiny("run", "--model.rpe=rope", "--train.epochs=1")
    tiny("run", "--model.rpe=rope", "--model.img_size=12", "--train.epochs=2", "--resume=auto")
    assert len(read_metrics(tmp_path / "run")) == 2


@pytest.mark.parametrize("fp16_then", [True, False])
def test_another_precision_is_refused(fp16_then: bool) -> None:
    """Scaled gradients need a GPU, so that the state is made up."""
    config = parse_config([])
    before = parse_config([])
    (before if fp16_then else config).train.precision = "fp16"
    plain: list[dict[str, Any]] = [
        {
            "model": vars(each.model),
            "train": {"optimizer": each.train.optimizer, "precision": each.train.precision, "ema_decay": None},
        }
        for each in (before, config)
    ]
    state = {"config": plain[0], "ema": None, "scaler": {} if fp16_then else None}
    values = ("fp16", "no") if fp16_then else ("no", "fp16")
    with pytest.raises(ValueError, match=r"check train\.precision, which was '{}' and is '{}'".format(*values)):
        check_config_of_state(config, state, plain[1])


def test_shapes_are_compared_and_old_scalars_are_not() -> None:
    now: dict[str, Any] = {"model": {"img_size": 9}, "data": {}}
    state = {"model": nn.Linear(3, 1).state_dict(), "config": {"model": {"img_size": 8}, "data": {}}}
    state["model"]["bias"] = torch.zeros(())
    check_weights_of_state(nn.Linear(3, 1), state, now)
    message = r"weight has the shape \(1, 3\) there and \(1, 4\) now; model\.img_size was 8, is 9"
    with pytest.raises(ValueError, match=message):
        check_weights_of_state(nn.Linear(4, 1), state, now)


LETTERS = [chr(97 + number) for number in range(12)]


@pytest.mark.parametrize(
    ("given", "known", "message"),
    [
        ("ab", "ab", None),
        ("ab", "", None),
        ("ab", "ac", "the data have the classes a, b (2), it has a, c (2)"),
        ("ba", "ab", "the same in another order, number 0 is b here and a there"),
        ("abc", "ab", "the data have the classes a, b, c (3), it has a, b (2)"),
        (LETTERS, [*LETTERS[:-1], "z"], "l only here; z only there"),
        (LETTERS, [*LETTERS[:-2], "l", "k"], "number 10 is k here and l there"),
        (LETTERS, LETTERS[:-1], "l only here"),
    ],
)
def test_names_are_compared_with_their_order(given: Any, known: Any, message: str | None) -> None:
    if message is None:
        check_classes(list(given), list(known), of="the data", by="it")
        return
    with pytest.raises(ValueError) as caught:
        check_classes(list(given), list(known), of="the data", by="it")
    assert message in str(caught.value)
    vocabularies = [{"characters": ["\ufffd", *names]} for names in (given, known)]
    with pytest.raises(ValueError, match="have a vocabulary of"):
        check_vocabulary(*vocabularies, of="the data", by="it")


def _photos(folder: Path, *names: str) -> Path:
    for split in ("train", "val"):
        for shade, name in enumerate(names):
            (folder / split / name).mkdir(parents=True)
            for number in range(8):
                noise = np.random.default_rng([shade, number, split == "val"]).integers(0, 40, (8, 8, 3))
                Image.fromarray((noise + 200 * shade).astype(np.uint8)).save(folder / split / name / f"{number}.png")
    return folder


SMALL = ["--data.name=folder", "--model.name=vit_rpe_nano_patch2_8", "--data.batch_size=8", "--train.warmup_epochs=0"]
SMALL += ["--model.args={depth: 1, embed_dim: 24, num_heads: 3}", "--train.device=cpu", "--pictures=false"]


def test_other_classes_are_refused_by_resume_evaluate_and_as_a_teacher(tmp_path: Path, capsys) -> None:
    """b and c change places when b becomes 0b; the model would call each by the other's name."""
    data, run = _photos(tmp_path / "photos", "a", "b"), tmp_path / "run"
    words = [*SMALL, f"--data.path={data}", "--train.epochs=1"]
    train(parse_config([*words, f"--output={run}"]))
    before = _everything(run)
    for renamed, shown in (("0b", "0b, a (2)"), ("c", "a, c (2)")):
        for split in ("train", "val"):
            os.rename(data / split / "b", data / split / renamed)
        asked = (
            ["train", *words, f"--output={run}", "--resume=auto", "--train.epochs=2"],
            ["train", *words, f"--output={tmp_path / 'student'}", f"--train.distill.teacher={run}"],
            ["evaluate", "--checkpoint", str(run)],
        )
        for command in asked:
            assert main(command) == 1
            said = capsys.readouterr().err
            assert f"the data have the classes {shown}, the " in said
            assert "has a, b (2)" in said
        for split in ("train", "val"):
            os.rename(data / split / renamed, data / split / "b")
    assert _everything(run) == before
    assert main(asked[0]) == main(asked[2]) == 0


@pytest.mark.parametrize("config", ["text/char_lm_t5", "text/passages_bias"])
def test_another_vocabulary_is_refused(tmp_path: Path, config: str) -> None:
    """As many characters, one of them another; the tokens would mean something else."""
    corpus, run = tmp_path / "corpus", tmp_path / "run"
    for number in range(24):
        place = corpus / ("three" if number % 2 else "five") / f"{number}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"one two {place.parent.name} four\n\n" * (number + 9))
    words = [f"--config={config}", f"--data.path={corpus}", f"--output={run}", "--data.length=12"]
    words += ["--data.val_fraction=0.4", "--data.batch_size=4", "--train.warmup_epochs=0", "--pictures=false"]
    words += ["--model.args={embed_dim: 16, depth: 1, num_heads: 2}"]
    train(parse_config([*words, "--train.epochs=1"]))
    before = _everything(run)
    for file in corpus.rglob("*.txt"):
        file.write_text(file.read_text().replace("f", "q"))
    with pytest.raises(ValueError, match=r"the data have a vocabulary of \d+ characters, the checkpoint to resume has"):
        train(parse_config([*words, "--train.epochs=2", "--resume=auto"]))
    assert _everything(run) == before


def test_a_checkpoint_of_another_optimiser_is_another_even_in_a_folder_of_its_own(tiny, tmp_path: Path) -> None:
    """``--resume RUN`` into another folder is judged before that folder is made."""
    tiny("run", "--train.epochs=1")
    with pytest.raises(ValueError, match="another optimiser"):
        tiny(
            "other",
            "--train.optimizer=sgd",
            "--train.epochs=2",
            f"--resume={tmp_path / 'run'}",
            "--config=digits/vit_nano_bias",
        )
    assert not (tmp_path / "other").exists()
    assert state_of(tmp_path / "run")["config"]["train"]["optimizer"] == "adamw"
