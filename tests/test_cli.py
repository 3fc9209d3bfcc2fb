"""The command line from the outside: the table, whole commands, and errors in one line."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.training.conftest import TINY
from vit_rpe.cli import COMMANDS, OptionParser, main, one_line_errors

COLOURS = {"0": (250, 20, 20), "1": (20, 250, 20), "2": (20, 20, 250), "10": (240, 240, 20)}


def _images(folder: Path, name: str, count: int) -> None:
    """Noisy images of one colour, of odd sizes."""
    random = np.random.default_rng(int(name))
    (folder / name).mkdir(parents=True)
    for number in range(count):
        shape = (9 + number % 3, 8 + number % 4, 3)
        pixels = np.clip(random.normal(COLOURS[name], 30, shape), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name / f"{number}.png")


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train/ and val/; the numeric names sort differently as text and as numbers."""
    root = tmp_path_factory.mktemp("colours")
    for name in COLOURS:
        _images(root / "train", name, 12)
        if name != "1":
            _images(root / "val", name, 4)
    return root


@pytest.fixture(scope="module")
def trained(colours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on those images."""
    output = tmp_path_factory.mktemp("runs") / "colours"
    words = ["--model.args={depth: 1, embed_dim: 24, num_heads: 3}", "--data.name=folder", f"--data.path={colours}"]
    words += ["--train.epochs=12", "--train.lr=0.01", "--train.warmup_epochs=1", "--data.batch_size=16"]
    words += ["--train.device=cpu", "--pictures=false", f"--output={output}"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["train", *words]) == 0
    return output


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_row_of_the_table_is_a_command(name: str) -> None:
    module = importlib.import_module(f"vit_rpe.commands.{name}")
    assert module.__doc__
    if name == "train":
        assert callable(module.main)
        return
    parser = OptionParser(prog=name)
    module.add_arguments(parser)
    assert callable(module.run)
    assert len(parser.format_help()) > 50


def test_the_overview_lists_every_command(capsys) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert f"{name} " in out
        assert summary in out
    assert main([]) == 2


def test_an_unknown_command(capsys) -> None:
    assert main(["evalute"]) == 1
    assert capsys.readouterr().err.startswith("error: unknown command 'evalute' (did you mean 'evaluate'?)")


def test_faults_of_ours_keep_their_traceback() -> None:
    def fault() -> int:
        raise KeyError("a fault")

    with pytest.raises(KeyError, match="a fault"):
        one_line_errors(fault)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--train.epochz", "2"], "did you mean 'train.epochs'?"),
        (["train", "--model.rpe", "rpoe"], "did you mean 'rope'?"),
        (["train", "--model.img_size", "9"], "9"),
        (["train", "--data.name", "folder", "--data.path", "/nowhere/at/all"], "/nowhere/at/all"),
        (["train", "--resume", "/nowhere/at/all"], "nothing to resume at /nowhere/at/all"),
        (["evaluate", "--checkpoint", "/nowhere/at/all"], "no checkpoint at /nowhere/at/all"),
        (["predict", "x.png", "--checkpoint", "/nowhere"], "no such image: x.png"),
    ],
)
def test_errors_are_one_line(words: list[str], message: str, capsys) -> None:
    assert main(words) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_train_py_is_the_same_command() -> None:
    script = Path(__file__).parent.parent / "train.py"
    done = subprocess.run(
        [sys.executable, str(script), "--train.epoch", "3"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "error: unknown config key 'train.epoch' (did you mean 'train.epochs'?)\n"
    assert len(script.read_text().splitlines()) < 60


def test_classes_keep_one_order_everywhere(trained: Path) -> None:
    """Train has 0, 1, 2, 10 and validation lacks 1: the map is that of training, and travels with the checkpoint."""
    assert "warning: " in (trained / "log.txt").read_text()
    config = json.loads((trained / "last" / "config.json").read_text())
    assert config["class_names"] == ["0", "1", "2", "10"]


def test_evaluate_from_the_checkpoint_alone(trained: Path, capsys) -> None:
    with pytest.warns(UserWarning, match="1"):
        assert main(["evaluate", "--checkpoint", str(trained / "last"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["count"] == 12
    assert result["top1"] == 1.0
    assert result["per_class"] == {"0": 1.0, "1": None, "2": 1.0, "10": 1.0}
    assert [row[index] for index, row in enumerate(result["confusion"])] == [4, 0, 4, 4]
    with pytest.warns(UserWarning, match="1"):
        assert main(["evaluate", "--checkpoint", str(trained), "--img-size", "16", "24", "--split", "train"]) == 0
    out = capsys.readouterr().out
    assert "48 at 16x24" in out
    assert out.splitlines()[-1].startswith("train accuracy: ")


def test_evaluation_refuses_other_classes(trained: Path, tmp_path: Path, capsys) -> None:
    for name in ("0", "1", "2"):
        _images(tmp_path / "train", name, 2)
        _images(tmp_path / "val", name, 2)
    for command in ("evaluate", "extrapolate"):
        assert main([command, "--checkpoint", str(trained), "--data.path", str(tmp_path)]) == 1
        assert "the data have the classes 0, 1, 2 (3), the checkpoint has 0, 1, 2, 10 (4)" in capsys.readouterr().err
    assert main(["evaluate", "--checkpoint", str(trained), "--data.name", "digits"]) == 1
    assert "the data have the classes 0, 1, 2, 3, 4, 5, 6, 7, ... (10)" in capsys.readouterr().err


def test_predict(trained: Path, colours: Path, capsys) -> None:
    images = [str(colours / "val" / name / "1.png") for name in ("10", "0", "2")]
    assert main(["predict", *images, "--checkpoint", str(trained), "--top", "2", "--batch-size", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == images
    assert [line.split()[1] for line in lines] == ["10", "0", "2"]
    assert main(["predict", str(colours / "val"), "--checkpoint", str(trained), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 12
    for row in rows:
        assert row["classes"][0]["class"] == Path(row["image"]).parent.name
        assert sum(item["probability"] for item in row["classes"]) == pytest.approx(1, abs=1e-5)


def test_predict_names_an_image_it_cannot_read(trained: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "broken.png").write_bytes(b"not an image")
    assert main(["predict", str(tmp_path / "broken.png"), "--checkpoint", str(trained)]) == 1
    assert "broken.png" in capsys.readouterr().err


def test_predict_goes_on_after_an_image_it_cannot_read(trained: Path, colours: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "broken.png").write_bytes(b"not an image")
    good = str(next((colours / "val").rglob("*.png")))
    words = ["predict", str(tmp_path / "broken.png"), good, "--checkpoint", str(trained), "--batch-size", "1"]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out.startswith(good)
    assert err.count("error:") == 1


@pytest.mark.filterwarnings("ignore:1 of 4 classes have no validation image")
def test_evaluate_counts_the_images_it_skips(trained: Path, colours: Path, tmp_path: Path, capsys) -> None:
    root = tmp_path / "colours"
    shutil.copytree(colours, root)
    (next((root / "val").iterdir()) / "broken.png").write_bytes(b"not an image")
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    info = run / "last" / "config.json"
    info.write_text(info.read_text().replace('"on_bad_image": "error"', '"on_bad_image": "skip"'))
    assert main(["evaluate", "--checkpoint", str(run / "last"), "--data.path", str(root), "--workers", "0"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("1 image(s) could not be read; the first: ")
    assert "broken.png" in err
    assert "could not be read" not in out


def test_ctrl_c_is_one_line(capsys) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    assert one_line_errors(stopped) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_short_main_job(tmp_path: Path, capsys) -> None:
    assert main(["train", *TINY, "--train.epochs=1", f"--output={tmp_path / 'run'}"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert main(["evaluate", "--checkpoint", str(tmp_path / "run" / "last"), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == line
