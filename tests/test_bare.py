"""What ``pip install vit_rpe`` gives without any extra: models, layers, trained weights and the explorer's page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from vit_rpe.cli import EXTRAS, main
from vit_rpe.models.shipped import shipped_models

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "vit_rpe" / "samples"

BARE = """
import json, sys, warnings
from importlib.machinery import PathFinder
blocked, find = set(json.loads(sys.argv[1])), PathFinder.find_spec
def hidden(name, *rest):
    return None if name.partition(".")[0] in blocked else find(name, *rest)
PathFinder.find_spec = staticmethod(hidden)
import timm, torch
import vit_rpe
from vit_rpe.cli import main
from vit_rpe.models.shipped import shipped_models

images = torch.zeros(2, 3, 32, 32)
for name in vit_rpe.list_encodings():
    model = timm.create_model("vit_rpe_nano_patch4_32", rpe=name, num_classes=3, depth=1).eval()
    assert model(images).shape == (2, 3), name
assert vit_rpe.RelativeMultiheadAttention(24, 3, rpe="t5", grid=(2, 5))(torch.zeros(1, 10, 24)).shape == (1, 10, 24)
with torch.no_grad(), vit_rpe.viz.record(model) as seen:
    model(images)
assert seen.attention(0).shape[0] == 2
name = sorted(shipped_models())[0]
assert timm.create_model(name, pretrained=True)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
assert main(["explore", "--checkpoint", name, "--output", sys.argv[2]]) == 0
assert main(["predict", sys.argv[3], "--checkpoint", name]) == 0
assert not blocked & {module.partition(".")[0] for module in sys.modules}
for plot in (vit_rpe.viz.plot_layers, vit_rpe.viz.plot_images, vit_rpe.viz.plot_rollout):
    try:
        plot(seen, images)
    except ModuleNotFoundError as error:
        print("plots:", error)
for plot in (vit_rpe.viz.plot_bias, vit_rpe.viz.plot_distance):
    try:
        plot(seen)
    except ModuleNotFoundError as error:
        print("plots:", error)
"""


def test_base_dependencies_give_models_layers_weights_and_the_explorer(tmp_path: Path) -> None:
    blocked = sorted({module for modules in EXTRAS.values() for module in modules})
    page = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BARE, json.dumps(blocked), str(page), str(SAMPLES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert all(f"{name}.png" in text for name in ("zero", "two", "four", "six", "seven"))
    assert re.findall(r"(?:src|href)=[\"']?https?:", text) == []
    assert "five digits of ours" in done.stderr
    assert done.stdout.count("pip install 'vit_rpe[viz]'") == 5, "every plot names the extra it needs"


@pytest.mark.parametrize("name", sorted(shipped_models()))
def test_the_trained_models_read_the_five_digits(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if shipped_models()[name].data != "digits" or shipped_models()[name].results["top1"] < 0.95:
        return  # other images, or a model that hardly knows position and says so in its card
    torch.manual_seed(0)
    assert main(["predict", str(SAMPLES), "--checkpoint", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    truth = {"zero": "0", "two": "2", "four": "4", "six": "6", "seven": "7"}
    found = {Path(line.split()[0]).stem: line.split()[1] for line in lines if ".png" in line}
    assert sum(found[word] == digit for word, digit in truth.items()) >= 4


def test_explorer_colours_are_those_of_the_figures() -> None:
    from matplotlib import colormaps

    from vit_rpe.viz.explorer.write import _colours
    from vit_rpe.viz.plots.canvas import ATTENTION, SIGNED

    for name in (ATTENTION, SIGNED):
        expected = np.rint(colormaps[name](np.linspace(0, 1, 256))[:, :3] * 255).astype(int)
        assert _colours(name) == expected.flatten().tolist()


@pytest.mark.slow
def test_the_wheel_is_small_and_complete(tmp_path: Path) -> None:
    """Everything of the package and the configs, nothing else; at most 12 MB."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
        ".",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and "hatchling" in done.stderr:
        command.remove("--no-build-isolation")
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 12_000_000
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(["git", "ls-files", "vit_rpe", "configs"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip(reason="no git: what belongs to the package is not known")
    expected = {re.sub("^configs/", "vit_rpe/configs/", name) for name in tracked.stdout.split("\n") if name}
    assert names == expected
