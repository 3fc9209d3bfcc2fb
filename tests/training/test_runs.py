"""Runs as models: one call in Python, a name for timm, a list of what lies below a folder; and plug-ins of a run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import timm
import torch
from timm.data import resolve_model_data_config

import vit_rpe
from tests.training.test_old_runs import RUNS
from vit_rpe import plugins
from vit_rpe.encodings import _registry
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.checkpoint.runs import encoding_words
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.config.yaml_text import load_yaml

PLUGIN = """
import torch
from vit_rpe.encodings import Card, PositionEncoding, register
from vit_rpe.position.terms import PositionTerms

@register("{name}", Card(paper="none", adds=("bias",), {beyond}="nothing"))
class Slope(PositionEncoding):
    def __init__(self, num_heads, head_dim, grid):
        super().__init__(num_heads, head_dim, grid)
        self.slope = torch.nn.Parameter(torch.ones(num_heads, 1, 1))

    def forward(self, q, k, device=None):
        return PositionTerms(bias=self.slope.expand(-1, q.num_tokens, k.num_tokens))
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    from dataclasses import fields

    beyond = next(item.name for item in fields(vit_rpe.encodings.Card) if item.name not in ("paper", "adds"))
    file = tmp_path / "my_slope.py"
    file.write_text(PLUGIN.format(name="my_slope", beyond=beyond))
    yield file
    _registry._REGISTRY.pop("my_slope", None)
    plugins._loaded.pop(str(file.resolve()), None)


def test_one_call_gives_a_model(tiny, tmp_path: Path) -> None:
    result = tiny("run", "--train.epochs=1")
    for place in ("run", "run/best", "run/last/model.safetensors"):
        run = vit_rpe.load_run(tmp_path / place)
        assert run.class_names == list("0123456789")
        assert not run.model.training
    images = torch.rand(2, 1, 8, 8)
    theirs = timm.create_model(f"local-dir:{tmp_path / 'run' / 'last'}", pretrained=True).eval()
    torch.testing.assert_close(theirs(images), run.model(images))
    config = resolve_model_data_config(theirs)
    assert config["input_size"] == (1, 8, 8)
    assert tuple(config["mean"]) == tuple(run.preprocessing.mean)
    assert list(theirs.pretrained_cfg["label_names"]) == run.class_names
    larger = timm.create_model(f"local-dir:{tmp_path / 'run' / 'last'}", pretrained=True, img_size=(8, 12))
    assert larger(torch.rand(1, 1, 8, 12)).shape == (1, 10)
    assert vit_rpe.load_run(tmp_path / "run", img_size=(8, 12)).model(torch.rand(1, 1, 8, 12)).shape == (1, 10)
    assert result.evaluation.count == 359


def test_runs_below_a_folder_are_listed(tmp_path: Path) -> None:
    for name in ("bias", "combined", "text"):
        shutil.copytree(RUNS / name, tmp_path / "deep" / name)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.yaml").write_text("model: 3")
    broken, bias, combined, text = vit_rpe.list_runs(tmp_path)
    assert broken.problem is not None
    assert (bias.encoding, bias.data, bias.epochs, bias.epochs_planned) == ("bias init_std=1.0", "digits", 8, 8)
    assert bias.accuracy == pytest.approx(0.727, abs=1e-3)
    assert combined.encoding == "bias + rope"
    assert text.model == "rpe_sequence_nano"
    with pytest.raises(ValueError, match="there is no folder"):
        vit_rpe.list_runs(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("rpe", "words"),
    [("bias", "bias"), (["bias", {"name": "rope", "base": 50}], "bias + rope base=50"), ({"name": "t5"}, "t5")],
)
def test_an_encoding_in_words(rpe: object, words: str) -> None:
    assert encoding_words(rpe) == words


def test_a_plugin_goes_with_its_run(tiny, tmp_path: Path, plugin: Path) -> None:
    tiny("run", "--model.rpe=my_slope", f"--plugin={plugin}", "--train.epochs=1")
    assert "my_slope" in vit_rpe.list_encodings()
    written = load_yaml((tmp_path / "run" / "config.yaml").read_text())
    assert written["plugin"] == [str(plugin)]
    assert load_checkpoint(tmp_path / "run").info.plugins == [str(plugin)]
    tiny("run", "--model.rpe=my_slope", "--plugin", str(plugin), "--train.epochs=2", "--resume=auto")


def test_a_run_imports_nothing_by_itself(tiny, tmp_path: Path, plugin: Path) -> None:
    tiny("run", "--model.rpe=my_slope", f"--plugin={plugin}", "--train.epochs=1")
    _registry._REGISTRY.pop("my_slope")
    plugins._loaded.clear()
    run = str(tmp_path / "run")
    with pytest.raises(ValueError, match=f"unknown rpe 'my_slope'.*--plugin {plugin}"):
        vit_rpe.load_run(run)
    with pytest.raises(ValueError, match=f"cannot be resumed like this: .*--plugin {plugin}"):
        parse_config(["--resume", run])
    moved = plugin.parent / "elsewhere" / plugin.name
    moved.parent.mkdir()
    shutil.copy(plugin, moved)
    assert vit_rpe.load_run(run, plugins=[str(moved)]).class_names
    parse_config(["--resume", run, "--plugin", str(moved)])
    plugins._loaded.clear()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no file"), ("import nonsense_zq", "nonsense_zq"), ("def f(:", "SyntaxError")],
)
def test_a_plugin_that_cannot_be_imported(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "wrong.py"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=message):
        plugins.load_plugins([str(file)])
    with pytest.raises(ValueError, match="no_module_zq cannot be imported"):
        plugins.load_plugins(["no_module_zq"])


def test_an_installed_package_brings_its_encodings(tmp_path: Path, plugin: Path) -> None:
    """A package with an entry point on the path; in a process of its own, where nothing is imported yet."""
    (tmp_path / "site" / "slope-1.0.dist-info").mkdir(parents=True)
    shutil.copy(plugin, tmp_path / "site" / "slope_package.py")
    (tmp_path / "site" / "slope-1.0.dist-info" / "entry_points.txt").write_text(
        "[vit_rpe.plugins]\nslope = slope_package\n"
    )
    (tmp_path / "site" / "slope-1.0.dist-info" / "METADATA").write_text("Name: slope\nVersion: 1.0\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import vit_rpe, timm\n"
        "assert 'my_slope' in vit_rpe.list_encodings()\n"
        "timm.create_model('vit_rpe_nano_patch2_8', rpe='my_slope', num_classes=2)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=Path(vit_rpe.__file__).parents[1])
