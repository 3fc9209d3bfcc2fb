"""Before a command does its work: what is imported, what is said where an extra is missing, the package's face."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vit_rpe
from tests.viz.build import CHANNELS
from vit_rpe.cli import COMMANDS, EXTRAS, main
from vit_rpe.data import Preprocessing
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, save_checkpoint

ROOT = Path(__file__).resolve().parent.parent.parent

SMALLEST = ["--size", "nano", "--img-size", "8", "--patch-size", "4", "--depth", "1", "--seconds", "0", "--rounds", "1"]

LIGHT = """
import sys
from vit_rpe.cli import COMMANDS, main
assert main(["--help"]) == 0 and main(["--version"]) == 0
for name in COMMANDS:
    if name != "train":  # its options are the fields of its config
        try:
            main([name, "--help"])
        except SystemExit as done:
            assert done.code == 0
    assert not {"torch", "timm", "numpy", "matplotlib"} & set(sys.modules), name
import vit_rpe
assert "encodings" in dir(vit_rpe)
from vit_rpe.position.geometry import TokenGrid
import timm
assert timm.is_model("vit_rpe_tiny_patch4_32"), "timm does not know our models after both packages were imported"
assert "exec_module" not in vars(timm.__spec__.loader)
"""

BASE = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder
blocked, find = set(json.loads(sys.argv[1])), PathFinder.find_spec
def hidden(name, *rest):
    return None if name.partition(".")[0] in blocked else find(name, *rest)
PathFinder.find_spec = staticmethod(hidden)
import vit_rpe.layers  # imports timm on the way
import timm
assert timm.is_model("vit_rpe_tiny_patch4_32")
from vit_rpe.cli import main
for words in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    print(json.dumps([status, err.getvalue()]))
"""


def test_help_imports_no_torch_and_models_are_registered_later() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vit_rpe {vit_rpe.__version__}\n"


def test_every_name_of_the_face_has_a_home() -> None:
    """The table that imports names late, and what type checkers read, say the same."""
    for name in vit_rpe.__all__:
        assert getattr(vit_rpe, name) is not None
    tree = ast.parse(Path(vit_rpe.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {(node.module, alias.name) for node in block.body for alias in node.names}  # type: ignore[attr-defined]
    assert seen == {(home, name) for home, names in vit_rpe._HOMES.items() for name in names}
    assert {name for _, name in seen} == set(vit_rpe.__all__) - {"__version__"}


def test_dir_shows_the_face_and_nothing_else() -> None:
    shown = {name for name in dir(vit_rpe) if not name.startswith("__")}
    rooms = {path.name for path in (ROOT / "vit_rpe").iterdir() if (path / "__init__.py").exists()}
    assert shown == (set(vit_rpe.__all__) | rooms) - {"__version__", "benchmark", "commands"}
    assert vit_rpe.viz.record is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = vit_rpe.nothing


def test_extras_are_those_of_the_project() -> None:
    """``EXTRAS`` names what ``pyproject.toml`` installs, less what torchvision and timm need anyway."""
    text = (ROOT / "pyproject.toml").read_text()
    imported = {"scikit-learn": "sklearn", "opencv-python-headless": "cv2"}
    for extra, modules in EXTRAS.items():
        listed = re.search(rf"^{extra} = \[(.*?)\]$", text, re.DOTALL | re.MULTILINE)
        assert listed is not None
        names = re.findall(r'"([\w-]+)', listed[1])
        there = {imported.get(name, name) for name in names} - {"pillow", "pyyaml", "ruamel"}
        assert there == set(modules), extra


def test_without_extras_one_line_names_the_one_to_install(tmp_path: Path) -> None:
    """Every command in an environment that has the dependencies of the package and none of its extras."""
    args = {"img_size": [6, 10], "in_chans": CHANNELS, "num_classes": 2, "class_token": True, "depth": 1, "rpe": "rope"}
    name = "vit_rpe_nano_patch2_8"
    model = __import__("timm").create_model(name, **args)
    data = {"name": "digits"}
    info = CheckpointInfo(name, args, ["a", "b"], Preprocessing((6, 10), 1, (0.5,), (0.25,)).to_dict(), data=data)
    save_checkpoint(tmp_path, model.state_dict(), info)
    from PIL import Image

    Image.new("L", (10, 6)).save(tmp_path / "x.png")
    run, image, out = str(tmp_path), str(tmp_path / "x.png"), str(tmp_path / "out")
    shown = ["--checkpoint", run, "--image", image, "--output", out]
    works = [
        ["predict", image, "--checkpoint", run],
        ["encodings"],
        ["explore", *shown[:-1], out + ".html"],
        ["export", run, "--format", "torch_export", "--output", out + ".pt2"],
        ["benchmark", *SMALLEST],
    ]
    refused = {
        "train": ["train"],
        "evaluate": ["evaluate", "--checkpoint", run],
        "extrapolate": ["extrapolate", "--checkpoint", run, "--output", out],
        "study": ["study", "--config", "study/digits", "--list"],
        "speedrun": ["speedrun", "--quick"],
        "visualize": ["visualize", *shown],
        "encodings": ["encodings", "--pictures", out],
        "share": ["share", "--checkpoint", run, "--output", out],
        "export": ["export", run],
    }
    assert {*refused, *(words[0] for words in works), "parity"} >= set(COMMANDS) - {"list"}
    words = [*works, *refused.values()]
    blocked = json.dumps(sorted({module for modules in EXTRAS.values() for module in modules}))
    done = subprocess.run(
        [sys.executable, "-c", BASE, blocked, json.dumps(words)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(status, err) for status, err in found[: len(works)]] == [(0, "")] * len(works)
    for command, (status, err) in zip(refused, found[len(works) :], strict=True):
        assert status == 1, command
        assert err.count("\n") == 1, err
        assert re.search(r"pip install 'vit_rpe\[(train|viz|export)\]'", err), err
