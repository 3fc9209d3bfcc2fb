"""``vit-rpe share``: what is written is what was measured; and every trained model of the package is what its card
says."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from scipy.stats import binomtest

from tests.training.conftest import forget_processes
from vit_rpe.cli import main
from vit_rpe.evaluation.model_card import wilson_interval
from vit_rpe.evaluation.trained_data import evaluate_trained
from vit_rpe.models.shipped import shipped_models
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.config.yaml_text import read_yaml
from vit_rpe.training.run import train

SMALL = "--model.args={in_chans: 1, depth: 2, embed_dim: 24, num_heads: 3}"


CREDIT = {"digits": "UCI", "cifar10": "Krizhevsky", "fashion_mnist": "Zalando"}
PLACE = {"cifar10": "VIT_RPE_CIFAR10", "fashion_mnist": "VIT_RPE_FASHION_MNIST"}
"""The environment variable that names the folder of data which do not come with a package."""


def measurable(name: str) -> Any:
    variable = PLACE.get(shipped_models()[name].data)
    absent = variable is not None and variable not in os.environ
    return pytest.param(name, marks=pytest.mark.skipif(absent, reason=f"set {variable} to the folder of its data"))


@pytest.mark.parametrize("name", list(shipped_models()))
def test_card_of_a_trained_model(name: str) -> None:
    shipped = shipped_models()[name]
    card = (shipped.folder / "README.md").read_text()
    told = re.search(r"Accuracy \*\*([\d.]+) %\*\*, 95 % interval ([\d.]+) to ([\d.]+) %", card)
    interval = wilson_interval(shipped.results["top1"], shipped.results["count"])
    expected = [f"{100 * value:.1f}" for value in (shipped.results["top1"], *interval)]
    assert list(told.groups()) == expected
    needed = (f"# {name}", CREDIT[shipped.data], "vit-rpe train --config", "apache-2.0", "(attention.png)", "seed 0")
    assert [words for words in needed if words not in card] == []


@pytest.mark.parametrize("name", [measurable(name) for name in shipped_models()])
def test_a_trained_model_is_as_good_as_its_card_says(name: str) -> None:
    shipped = shipped_models()[name]
    place = os.environ.get(PLACE.get(shipped.data, ""))
    measured = evaluate_trained(load_checkpoint(name), **({} if place is None else {"path": place}))
    assert measured.result.count == shipped.results["count"]
    assert measured.result.top1 == pytest.approx(shipped.results["top1"], abs=1.5 / measured.result.count)


@pytest.mark.parametrize(("right", "count"), [(0, 7), (3, 7), (7, 7), (351, 359)])
def test_interval(right: int, count: int) -> None:
    expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
    torch.testing.assert_close(wilson_interval(right / count, count), (expected.low, expected.high))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    words = [SMALL, "--train.epochs=2", "--data.fraction=0.1", "--pictures=false", "--train.device=cpu"]
    train(parse_config([*words, "--train.lr=0.003", f"--output={folder}"]))
    forget_processes()
    return folder


def test_share(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine"
    words = [
        "share",
        "--checkpoint",
        str(trained / "last"),
        "--output",
        str(out),
        "--license",
        "mit",
        "--note",
        "Ours.",
    ]
    assert main(words) == 0
    assert "95 % interval" in capsys.readouterr().out
    assert {file.name for file in out.iterdir()} == {"README.md", "attention.png", "config.json", "model.safetensors"}
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n")
    assert "# mine\n" in card
    assert "Ours." in card
    assert "The weights of the last epoch, 2: nothing was chosen" in card
    assert str(tmp_path) not in card
    assert "seed 0" in card
    results = json.loads((out / "config.json").read_text())["results"]
    measured = evaluate_trained(load_checkpoint(out))
    assert measured.result.top1 == results["top1"]
    x = torch.randn(2, 1, 8, 8)
    halves = timm.create_model(f"local-dir:{out}", pretrained=True).eval()(x)
    torch.testing.assert_close(halves, load_checkpoint(trained / "last").model(x), rtol=0.01, atol=0.01)
    assert not torch.equal(halves, load_checkpoint(trained / "last").model(x))


def test_where_the_data_lie_stays_at_home_and_the_picture_may_be_of_other_images(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    for name, shade in (("dark", 20), ("light", 220)):
        for number in range(6):
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), shade + number).save(folder / name / f"{number}.png")
    command = ["train", SMALL, "--data.name=folder", "--data.path", str(folder), "--data.val_fraction=0.5"]
    command += ["--data.batch_size=4", "--train.epochs=1", "--train.warmup_epochs=0"]
    assert main([*command, "--train.device=cpu", "--pictures=false", f"--output={tmp_path / 'run'}"]) == 0
    forget_processes()
    versions = tmp_path / "run" / "versions.json"
    command = ["vit-rpe", "train", "--data.path", str(folder), f"--output={tmp_path}", "--data.val_fraction=0.5"]
    versions.write_text(json.dumps({**json.loads(versions.read_text()), "command": command}))
    out, shown = tmp_path / "out", folder / "dark" / "0.png"
    assert main(["share", "--checkpoint", str(tmp_path / "run"), "--output", str(out), "--image", str(shown)]) == 0
    for file in ("README.md", "config.json"):
        assert str(tmp_path) not in (out / file).read_text()
    assert "\nvit-rpe train --data.val_fraction=0.5\n" in (out / "README.md").read_text()
    with Image.open(out / "attention.png") as picture:
        one = picture.size
    assert main(["share", "--checkpoint", str(tmp_path / "run"), "--output", str(out)]) == 0
    with Image.open(out / "attention.png") as picture:
        assert picture.size != one  # several validation images


def test_an_epoch_that_was_chosen_is_said_to_be(trained: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    for source in (trained / "config.yaml", *(trained / "best").iterdir()):
        target = place / source.relative_to(trained)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes().replace(b'"epoch": 2', b'"epoch": 1'))
    assert main(["share", "--checkpoint", str(place), "--output", str(tmp_path / "out")]) == 0
    assert "Epoch 1 of 2 was the best on this very split" in (tmp_path / "out" / "README.md").read_text()


def test_a_model_of_text_has_bits_and_no_picture(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(f"{number}def f(x):\n    return x + {number}\n" * 8)
    words = ["--config=text/char_lm_t5", f"--data.path={tmp_path}", "--data.length=12", "--data.val_fraction=0.4"]
    words += ["--data.windows=20", "--data.val_characters=100", "--data.batch_size=7", "--train.epochs=1"]
    words += ["--train.warmup_epochs=0", "--model.args={embed_dim: 16, depth: 2, num_heads: 2}", "--train.device=cpu"]
    train(parse_config([*words, f"--output={tmp_path / 'run'}", "--pictures=false"]))
    forget_processes()
    assert main(["share", "--checkpoint", str(tmp_path / "run"), "--output", str(tmp_path / "out")]) == 0
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"README.md", "config.json", "model.safetensors"}
    results = json.loads((tmp_path / "out" / "config.json").read_text())["results"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"**{results['bits_per_character']:.3f} bits per character.**" in card
    assert "interval" not in card
    assert "attention.png" not in card


def test_other_files_stay_and_the_head_of_a_card_is_yaml(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("my page")
    words = ["share", "--checkpoint", str(trained / "last"), "--license", "other: research only", "--output"]
    assert main([*words, str(tmp_path / "mine")]) == 1
    assert "holds other files" in capsys.readouterr().err
    assert (tmp_path / "mine" / "README.md").read_text() == "my page"
    for _ in range(2):  # what it wrote itself is written again
        assert main([*words, str(tmp_path / "own")]) == 0
    (tmp_path / "head.yaml").write_text((tmp_path / "own" / "README.md").read_text().split("---")[1])
    assert read_yaml(tmp_path / "head.yaml")["license"] == "other: research only"


def test_refusals(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for output, message in ((trained / "best", "is the checkpoint itself"), (trained / "log.txt", "is a file")):
        assert main(["share", "--checkpoint", str(trained / "best"), "--output", str(output)]) == 1
        assert message in capsys.readouterr().err
    args = {"in_chans": 1, "num_classes": 10, "depth": 1}
    (tmp_path / "bare").mkdir()
    treatment = load_checkpoint(trained).preprocessing.to_dict()
    model = timm.create_model("vit_rpe_nano_patch2_8", **args)
    info = CheckpointInfo("vit_rpe_nano_patch2_8", args, list("0123456789"), treatment)
    save_checkpoint(tmp_path / "bare", model.state_dict(), info)
    assert main(["share", "--checkpoint", str(tmp_path / "bare"), "--output", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()
