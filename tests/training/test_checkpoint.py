"""Saving and loading without running code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from vit_rpe.data import Preprocessing
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, find_checkpoint, load_checkpoint, save_checkpoint

NAME = "vit_rpe_nano_patch2_8"
ARGS = {"rpe": {"name": "bias", "max_distance": 3}, "in_chans": 1, "img_size": [8, 12], "num_classes": 3, "depth": 2}


def _save(folder: Path) -> nn.Module:
    model = timm.create_model(NAME, **ARGS)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    treatment = Preprocessing(img_size=(8, 12), in_chans=1, mean=(0.3,), std=(0.4,), crop_pct=0.9)
    info = CheckpointInfo(NAME, ARGS, ["a", "b", "c"], treatment.to_dict(), grid=[4, 6], epoch=3)
    folder.mkdir(parents=True)
    save_checkpoint(folder, model.state_dict(), info)
    return model.eval()


def test_round_trip(tmp_path: Path) -> None:
    model = _save(tmp_path / "run" / "best")
    images = torch.randn(2, 1, 8, 12)
    for path in (tmp_path / "run", tmp_path / "run" / "best", tmp_path / "run" / "best" / "model.safetensors"):
        loaded = load_checkpoint(path)
        assert loaded.class_names == ["a", "b", "c"]
        assert (loaded.preprocessing.crop_pct, loaded.preprocessing.mean) == (0.9, (0.3,))
        assert not loaded.model.training
        torch.testing.assert_close(loaded.model(images), model(images), rtol=0, atol=0)


def test_another_image_size(tmp_path: Path) -> None:
    model = _save(tmp_path / "best")
    loaded = load_checkpoint(tmp_path / "best", img_size=(16, 10))
    assert loaded.preprocessing.img_size == (16, 10)
    model.set_input_size(img_size=(16, 10))
    images = torch.randn(2, 1, 16, 10)
    torch.testing.assert_close(loaded.model(images), model(images))
    with pytest.raises(ValueError, match="9"):
        load_checkpoint(tmp_path / "best", img_size=9)


def test_best_comes_before_last(tmp_path: Path) -> None:
    _save(tmp_path / "last")
    assert find_checkpoint(tmp_path).name == "last"
    _save(tmp_path / "best")
    assert find_checkpoint(tmp_path).name == "best"
    (tmp_path / "best").rename(tmp_path / "best.old")
    assert find_checkpoint(tmp_path).name == "best.old"


def _change(folder: Path, key: str, value: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 50), "cannot read"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no checkpoint at"),
        (lambda folder: (folder / "config.json").write_text("{"), "does not describe a checkpoint"),
        (lambda folder: (folder / "config.json").write_text('{"a": 1}'), "does not describe a checkpoint"),
        (lambda folder: (folder / "config.json").unlink(), "does not describe a checkpoint"),
        (
            lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"),
            "config.json does not describe a checkpoint",
        ),
        (lambda folder: _change(folder, "model_args", {**ARGS, "depths": 2}), "describe a checkpoint: .* 'depths'"),
        (lambda folder: _change(folder, "model_args", 3), "does not describe a checkpoint"),
        (lambda folder: _change(folder, "preprocessing", {}), "does not describe a checkpoint"),
        (lambda folder: _change(folder, "model_args", {**ARGS, "num_classes": 4}), f"do not fit {NAME}"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage, message: str) -> None:
    _save(tmp_path / "best")
    damage(tmp_path / "best")
    with pytest.raises(ValueError, match=message):
        load_checkpoint(tmp_path / "best")


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    from vit_rpe.training.checkpoint.state import read_state

    _save(tmp_path / "last")
    torch.save({"model": Evil()}, tmp_path / "last" / "training_state.pt")
    with pytest.raises(ValueError, match="cannot read"):
        read_state(tmp_path / "last" / "training_state.pt")
    assert not (tmp_path / "ran").exists()
