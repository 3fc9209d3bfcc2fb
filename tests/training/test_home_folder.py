"""``~`` is the home folder in every option that names a place, also where no shell has seen it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vit_rpe import cli
from vit_rpe.data import DataConfig
from vit_rpe.training.config.parse import parse_config


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("HOME", str(tmp_path))
    return str(tmp_path)


def test_in_a_file(home: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "output: ~/out\nresume: ~/run\nmodel: {checkpoint: ~/a}\ntrain: {distill: {teacher: ~/b}}\n"
        "data: {name: folder, path: ~/photos, val_path: ~/val}\n"
    )
    config = parse_config(["--config", str(file)])
    assert (config.output, config.resume) == (f"{home}/out", f"{home}/run")
    assert (config.model.checkpoint, config.train.distill.teacher) == (f"{home}/a", f"{home}/b")
    assert (config.data.path, config.data.val_path) == (f"{home}/photos", f"{home}/val")


@pytest.mark.parametrize("name", ["folder", "text"])
def test_in_python(home: str, name: str) -> None:
    assert DataConfig(name=name, path="~/x").path == f"{home}/x"


def test_after_an_equals_sign(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "--checkpoint=~/nothing"]) == 1
    assert f"{home}/nothing" in capsys.readouterr().err
