"""CONTRIBUTING's recipe for an encoding and the tutorial's example of one are true, tried with the files they name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import timm
import torch

from tests.encodings.build import HEADS, SCALE, build, grid_pairs, inputs, native_grid, output
from tests.oracles import ORACLES, attention_by_loops
from vit_rpe.encodings import PositionEncoding, _registry, create_encoding, list_encodings
from vit_rpe.models.catalogue import catalogue
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import dense_bias

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorials" / "write_an_encoding.py"
RECIPE = re.search(r"- \*\*A new encoding\*\*.*", (ROOT / "CONTRIBUTING.md").read_text())
FILES = [
    "vit_rpe/encodings/<name>.py",
    "vit_rpe/encodings/__init__.py",
    "tests/oracles/<name>.py",
    "docs/encodings.md",
    "README.md",
    "docs/tutorials/write_an_encoding.py",
]

ENCODING = '''
import torch
from torch import nn

from vit_rpe.encodings import Card, PositionEncoding, register
from vit_rpe.position.offset_tables import offset_range
from vit_rpe.position.terms import PositionTerms


@register("toy", Card(paper="a toy, arXiv 0000.00000", adds=("offset_bias",), extrapolation="defined for every offset"))
class Toy(PositionEncoding):
    """A learned scalar a head times the sum of the offsets."""

    def __init__(self, num_heads: int, head_dim: int, grid, *, sign: int = 1) -> None:
        super().__init__(num_heads, head_dim, grid)
        self.sign = sign
        self.pull = nn.Parameter(torch.zeros(num_heads))

    def forward(self, q, k, device=None):
        total = torch.zeros_like(self.pull[0])
        for axis in range(q.ndim):
            low, count = offset_range(q, k, axis)
            total = total[..., None] + torch.arange(count, device=total.device) + low
        pull = self.sign * self.pull.view(-1, *(1,) * q.ndim)
        return PositionTerms(offset_bias=(pull * total,), grids=(q, k))
'''

ORACLE = """
from tests.oracles._pair import Answer

CHANGES = {"sign": [{"sign": -1}]}


def answer(encoding, pair):
    return Answer(pair.content + encoding.pull[pair.head] * encoding.sign * sum(pair.delta or ()))
"""


def test_the_recipe_names_these_files() -> None:
    assert RECIPE is not None
    named = re.findall(r"`([\w/<>]+\.(?:py|md))`", RECIPE[0])
    assert named == FILES
    assert all((ROOT / path.replace("<name>", "alibi")).is_file() for path in named)


def load(path: Path, name: str) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The two modules of the recipe, written to files and imported as the two tables of contents would."""
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))
    for name, text in (("toy.py", ENCODING), ("toy_oracle.py", ORACLE)):
        (tmp_path / name).write_text(text)
    monkeypatch.setitem(sys.modules, "vit_rpe.encodings.toy", ModuleType("toy"))
    load(tmp_path / "toy.py", "vit_rpe.encodings.toy")
    monkeypatch.setitem(ORACLES, "toy", load(tmp_path / "toy_oracle.py", "toy_oracle"))
    yield
    sys.modules.pop("toy_oracle", None)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_toy_follows_its_oracle(axes: int) -> None:
    for q, k in grid_pairs(axes, prefix=1).values():
        encoding = build("toy", native_grid(axes, prefix=1), {"sign": -1})
        tensors = inputs(q, k, batch=1)
        expected = attention_by_loops(ORACLES["toy"].answer, encoding, *tensors, q, k, SCALE)
        torch.testing.assert_close(output(encoding, q, k, tensors), expected)


@pytest.mark.usefixtures("toy")
def test_a_toy_is_found_by_name_everywhere() -> None:
    assert "toy" in list_encodings()
    assert [row.paper for row in catalogue() if row.name == "toy"] == ["a toy, arXiv 0000.00000"]
    model = timm.create_model("vit_rpe_nano_patch4_32", rpe=[{"name": "toy", "sign": -1}, "t5"], num_classes=3)
    assert {"blocks.0.attn.rpe.parts.toy.pull"} <= model.state_dict().keys()
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 3)


@pytest.mark.usefixtures("toy")
def test_a_toy_is_resized_suggested_and_registered_once(tmp_path: Path) -> None:
    encoding = create_encoding("toy", HEADS, 12, native_grid(2))
    assert encoding.resized(TokenGrid((4, 5))).grid.size == (4, 5)
    with pytest.raises(ValueError, match="did you mean 'toy'"):
        create_encoding("toyy", HEADS, 12, native_grid(2))
    (tmp_path / "other.py").write_text(ENCODING.replace("class Toy", "class Other"))
    with pytest.raises(ValueError, match="'toy' exists already"):
        load(tmp_path / "other.py", "vit_rpe.encodings.toy")


def example() -> str:
    """The tutorial that writes an encoding, up to the end of the class."""
    cells = TUTORIAL.read_text().split("\n# %%")
    (last,) = [number for number, cell in enumerate(cells) if "@register(" in cell]
    return "\n".join(f"# %%{cell}" for cell in cells[: last + 1])


@pytest.fixture
def chebyshev(monkeypatch: pytest.MonkeyPatch) -> str:
    assert "offset_bias" in example(), "the tutorial teaches the form that scales"
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))
    exec(compile(example(), str(TUTORIAL), "exec"), {"__name__": "an_encoding_of_ones_own"})
    return "chebyshev"


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_example_in_the_tutorial_does_what_it_says(chebyshev: str, axes: int) -> None:
    encoding = create_encoding({"name": chebyshev, "init": 0.3}, HEADS, 12, native_grid(axes, prefix=1))
    with torch.no_grad():
        encoding.get_parameter("weight").mul_(torch.arange(1.0, 4.0))
    for q, k in grid_pairs(axes, prefix=1).values():
        by_loops(encoding, q, k)
    assert not encoding.card.per_pair


def by_loops(encoding: PositionEncoding, q: TokenGrid, k: TokenGrid) -> None:
    bias = dense_bias(encoding(q, k))
    assert bias is not None
    expected = torch.zeros(HEADS, q.num_tokens, k.num_tokens)
    for i, one in enumerate(q.positions().tolist()):
        for j, other in enumerate(k.positions().tolist()):
            farthest = max(abs(a - b) for a, b in zip(one, other, strict=True))
            for head, weight in enumerate(encoding.get_parameter("weight").tolist()):
                expected[head, q.num_prefix + i, k.num_prefix + j] = -weight * farthest
    torch.testing.assert_close(bias, expected)
