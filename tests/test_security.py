"""What SECURITY.md says: no file that is read runs code."""

from __future__ import annotations

import ast
import os
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from vit_rpe.data.sources.plain_pickle import read_plain_pickle
from vit_rpe.models import from_published
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.checkpoint.state import read_state
from vit_rpe.training.config.yaml_text import read_yaml
from vit_rpe.training.teacher import _load as load_teacher

PACKAGE = Path(__file__).resolve().parent.parent / "vit_rpe"
PLAIN_UNPICKLER = PACKAGE / "data" / "sources" / "plain_pickle.py"


class Attack:
    """What makes a file where a pickle is loaded without care."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def plain(path: Path) -> None:
    with path.open("rb") as file:
        read_plain_pickle(file)


def weights(path: Path) -> None:
    path.rename(path.with_name("model.safetensors"))
    path.with_name("config.json").write_text("{}")
    load_checkpoint(path.parent)


@pytest.mark.parametrize(
    "read",
    [read_state, lambda path: load_teacher(nn.Linear(1, 1), path), plain, weights, from_published],
    ids=["state", "teacher", "cifar", "weights", "published"],
)
@pytest.mark.parametrize("written", ["pickle", "torch"])
def test_no_route_runs_a_pickle(read, written: str, tmp_path: Path) -> None:
    file, trace = tmp_path / "given.pt", tmp_path / "ran"
    if written == "torch":
        torch.save({"model": Attack(trace)}, file)
    else:
        file.write_bytes(pickle.dumps({"model": Attack(trace)}))
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        read(file)
    assert not trace.exists()


def test_a_config_makes_plain_values_only(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"model: !!python/object/apply:os.mkdir [{tmp_path / 'ran'}]\n")
    with pytest.raises(ValueError, match="could not determine a constructor"):
        read_yaml(file)
    assert not (tmp_path / "ran").exists()


def calls(path: Path) -> list[tuple[str, dict[str, str]]]:
    tree = ast.parse(path.read_text())
    return [
        (ast.unparse(node.func), {str(word.arg): ast.unparse(word.value) for word in node.keywords})
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nothing_in_the_code_loads_without_care(path: Path) -> None:
    for name, words in calls(path):
        if name == "torch.load":
            assert words.get("weights_only") == "True"
        if name in ("np.load", "numpy.load"):
            assert words.get("allow_pickle", "False") == "False"
        assert name not in ("eval", "exec", "pickle.load", "pickle.loads", "yaml.load", "yaml.unsafe_load", "os.system")
        assert not name.startswith(("joblib.", "dill.", "marshal.")), name
        assert "Unpickler" not in name or path == PLAIN_UNPICKLER
        assert "trust_remote_code" not in words
