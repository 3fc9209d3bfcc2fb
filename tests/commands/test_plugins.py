"""An encoding of one's own in every command: named by ``--plugin``, known to the processes that a command starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import timm

from tests.commands.conftest import ARGS, NAME
from tests.training.test_runs import PLUGIN, plugin  # noqa: F401  (a fixture)
from vit_rpe.cli import COMMANDS, main
from vit_rpe.data import Preprocessing
from vit_rpe.plugins import load_plugins
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, save_checkpoint


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_takes_a_plugin(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert "--plugin" in capsys.readouterr().out


def test_a_plugin_that_is_not_there_is_told_first(places: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", places["image"], "--checkpoint", places["run"], "--plugin", "nowhere.py"]) == 1
    assert capsys.readouterr().err == "error: plugin: there is no file nowhere.py\n"


def test_commands_use_it(plugin: Path, places: dict[str, str], tmp_path: Path, capsys) -> None:  # noqa: F811
    word = ["--plugin", str(plugin)]
    assert main(["encodings", "--format", "json", *word]) == 0
    assert "my_slope" in [row["name"] for row in json.loads(capsys.readouterr().out)]
    args = {**ARGS, "rpe": "my_slope"}
    load_plugins([str(plugin)])
    info = CheckpointInfo(NAME, args, list("0123456789"), Preprocessing((8, 8), 1, (0.5,), (0.25,)).to_dict())
    save_checkpoint(tmp_path, timm.create_model(NAME, **args).state_dict(), info)
    for words in (
        ["predict", places["image"], "--checkpoint", str(tmp_path)],
        ["evaluate", "--checkpoint", str(tmp_path), "--data.name", "digits"],
        ["explore", "--checkpoint", str(tmp_path), "--image", places["image"], "--output", str(tmp_path / "page.html")],
    ):
        assert main([*words, *word]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_processes_of_a_command_know_it_too(tmp_path: Path) -> None:
    """The cells of a study and the process that measures memory, in a process that starts without it."""
    from dataclasses import fields

    from vit_rpe.encodings import Card

    beyond = next(item.name for item in fields(Card) if item.name not in ("paper", "adds"))
    (tmp_path / "my_slope.py").write_text(PLUGIN.format(name="my_slope", beyond=beyond))
    (tmp_path / "tiny.yaml").write_text(
        "name: tiny\nbase: digits/vit_nano_bias\nbaseline: my_slope\nvariants: [my_slope]\nfractions: [0.1]\n"
        "overrides: {train.epochs: 1, train.warmup_epochs: 0, model.args: {in_chans: 1, depth: 1}}\n"
    )
    study = ["study", "--config", "tiny.yaml", "--output", "out", "--plugin", "my_slope.py"]
    shape = [
        "--size",
        "nano",
        "--img-size",
        "8",
        "--patch-size",
        "4",
        "--depth",
        "1",
        "--seconds",
        "0",
        "--rounds",
        "1",
    ]
    memory = ["benchmark", "--encodings", "my_slope", *shape, "--memory", "--plugin", "my_slope.py"]
    code = f"from vit_rpe.cli import main; assert main({study}) == 0; assert main({memory}) == 0"
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {code}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "| my_slope |" in done.stdout
