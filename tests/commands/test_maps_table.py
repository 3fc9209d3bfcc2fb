"""``vit-rpe parity --maps``: one row a family, every described attention among them, and the tables of the page."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from pathlib import Path

import pytest

from vit_rpe.cli import main
from vit_rpe.commands._maps_table import family_table, maps_of
from vit_rpe.models.families import described, family_of, is_described
from vit_rpe.models.families.samples import ROWS, of_hugging_face, of_timm, of_torchvision, sample_of

PAGE = Path(__file__).parents[2] / "docs" / "pictures.md"
CASES = [(row.package, case) for row in ROWS for case in row.cases]
SHORT = [
    ("timm", "swin"),
    ("timm", "hiera"),
    ("timm", "efficientvit"),
    ("transformers", "swin"),
    ("torchvision", "vit"),
]


@pytest.mark.parametrize(
    ("package", "case"),
    [*SHORT, *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in CASES if each not in SHORT)],
)
def test_maps_are_the_familys_own(package: str, case: str) -> None:
    found = maps_of(package, case)
    assert found.maps < 1e-6
    assert found.logits == 0
    assert found.layers >= 1


def test_a_wrong_map_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from vit_rpe.models.families.swin import Swin

    own = Swin.scaled
    monkeypatch.setattr(Swin, "scaled", lambda self, layer, q, k: (q, k, 1.1 * own(self, layer, q, k)[2]))
    assert maps_of("timm", "swin").maps > 1e-4


def test_every_case_has_one_row() -> None:
    assert max(Counter(CASES).values()) == 1
    timms = {**of_timm.CASES, **of_timm.POOLED, **of_timm.OTHERS}
    expected = [("timm", case) for case in timms] + [("transformers", case) for case in of_hugging_face.CASES]
    expected += [("torchvision", case) for case in of_torchvision.CASES]
    assert set(CASES) == set(expected)


@pytest.mark.exhaustive
def test_every_described_family_has_a_row() -> None:
    seen = {
        type(family_of(module))
        for package, case in CASES
        for module in sample_of(package, case)[0].modules()
        if is_described(module)
    }
    assert {type(family) for family in described()} <= seen


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["parity", "--maps", "--families", "Twins"]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.count("|") == row.count("|") == 8
    assert "| timm | Twins | `twins_svt_small` | 8 |" in row
    assert row.endswith("| 0.0e+00 | `twins.py` |")
    assert main(["parity", "--maps", "--families", "Twin"]) == 1
    assert "'Twin' (did you mean 'Twins'?)" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "vit_rpe.models.families.samples.of_hugging_face")
    monkeypatch.delattr("vit_rpe.models.families.samples.of_hugging_face")
    assert main(["parity", "--maps", "--families", "CLIP's tower"]) == 0
    assert "not installed here" in capsys.readouterr().out.splitlines()[2]


def test_the_page_has_the_table() -> None:
    assert family_table() in PAGE.read_text(), f"docs/pictures.md should have:\n{family_table()}"


def test_the_page_has_a_row_of_every_family() -> None:
    page = PAGE.read_text()
    for row in ROWS:
        assert f"| {row.package} | {row.family} |" in page


def test_every_family_says_what_it_is_for() -> None:
    for family in described():
        module = inspect.getmodule(type(family))
        assert module is not None
        assert (module.__doc__ or "").strip()
