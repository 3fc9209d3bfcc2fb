"""``vit-rpe export`` and ``vit-rpe parity`` from the outside: what they write, and errors in one line with status 1."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from vit_rpe.cli import main
from vit_rpe.data import Preprocessing
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, save_checkpoint

ARGS = {"img_size": [16, 24], "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3, "num_classes": 5}


def saved(folder: Path, name: str = "vit_rpe_custom", **changes: Any) -> Path:
    args = {**ARGS, **changes}
    model = timm.create_model(name, **{**args, "img_size": tuple(args["img_size"])})
    treatment = Preprocessing(img_size=(16, 24), in_chans=3, mean=(0.5,) * 3, std=(0.5,) * 3)
    folder.mkdir()
    save_checkpoint(folder, model.state_dict(), CheckpointInfo(name, args, list("abcde"), treatment.to_dict()))
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("export") / "run")


def error_of(words: list[Any], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of an error."""
    assert main([str(word) for word in words]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ")
    return err


def test_a_program_of_another_size(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "model.pt2"
    words = ["export", checkpoint, "--format", "torch_export", "--img-size", 12, 20, "--output", path]
    assert main([str(word) for word in words]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {path}: any batch, 12x20; logits differ from the model's by at")
    assert torch.export.load(path).module()(torch.zeros(7, 3, 12, 20)).shape == (7, 5)


def test_a_run_of_a_windowed_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    windows = {"window_size": 3, "depths": [2], "num_heads": [3], "strict_img_size": True}
    run = saved(tmp_path / "run", "vit_rpe_swin_nano_patch2_window4_32", **windows, depth=None, rpe="cpb")
    assert main(["export", str(run), "--format", "torch_export"]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {run / 'model.pt2'}: any batch, 16x24; logits differ")
    assert torch.export.load(run / "model.pt2").module()(torch.zeros(5, 3, 16, 24)).shape == (5, 5)
    message = error_of(["export", run, "--format", "torch_export", "--dynamic-size"], capsys)
    assert "SwinTransformer is made for one size; export one file a size" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "onxx"], "did you mean 'onnx'?"),
        (["--img-size", "17"], "must be divisible by the patch, got img_size=(17, 17)"),
        (["--img-size", "1", "2", "3"], "--img-size takes a side, or height and width"),
        (["--output", "."], "--output . is a folder"),
        (["--checkpoint", "elsewhere"], "two checkpoints:"),
    ],
)
def test_bad_options(checkpoint: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in error_of(["export", checkpoint, *words], capsys)


def test_what_is_no_checkpoint_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "export needs a checkpoint" in error_of(["export"], capsys)
    for path in (tmp_path / "missing", tmp_path / "notes.txt", tmp_path):
        assert f"no checkpoint at {path}" in error_of(["export", path], capsys)
    heads = saved(tmp_path / "heads")
    config = heads / "config.json"
    config.write_text(config.read_text().replace('"num_heads": 3', '"num_heads": 4'))
    assert "only offsets can be resampled, not heads" in error_of(["export", heads], capsys)
    config.write_text(config.read_text().replace('"vit_rpe_custom"', '"vit_rpe_relpos_small_patch16_224.nope"'))
    assert "Invalid pretrained tag (nope)" in error_of(["export", heads], capsys)


def test_a_missing_package(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.import_module

    def without_onnx(name: str, package: str | None = None) -> Any:
        if name.partition(".")[0] == "onnx":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr("importlib.import_module", without_onnx)
    assert "export to ONNX needs onnx: pip install 'vit_rpe[export]'" in error_of(["export", checkpoint], capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--export", "--encodings", "bias", "rpoe"], "did you mean 'rope'?"),
        (["--encodings", "bias"], "--encodings goes with --export"),
        (["--export", "--grid", "3", "4"], "--grid does not go with --export"),
        (["--depth", "0"], "--depth and --grid must be an integer of at least 1, got 0"),
        (["--grid", "3", "-1"], "--depth and --grid must be an integer of at least 1, got -1"),
    ],
)
def test_bad_options_of_parity(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in error_of(["parity", *words], capsys)
