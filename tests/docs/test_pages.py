"""The pages are true: what they show as run is run, links lead somewhere, notebooks are those of their scripts."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
sys.path.insert(0, str(DOCS / "make"))


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(page: Path) -> set[str]:
    """As code hosts make them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """As a code host reads them; ``mkdocs build --strict`` says the same of the site."""
    text = without_code(page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{target} is not there"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{place.name} has no heading #{anchor}"


def test_coming_from_other_packages_is_run() -> None:
    page = DOCS / "coming-from.md"
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8", globs={"__name__": "coming_from"})
    assert result.attempted > 25
    assert result.failed == 0


def test_the_numbers_of_which_are_those_of_the_files() -> None:
    from which_table import table

    text = (DOCS / "which.md").read_text(encoding="utf-8")
    shown = text.split("<!-- measured -->\n")[1].split("\n<!-- /measured -->")[0]
    assert shown == table(), "run `python docs/make/which_table.py` and paste it"


@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_a_notebook_is_that_of_its_script(script: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="no nbformat: pip install 'vit_rpe[docs]'")
    pytest.importorskip("jupytext", reason="no jupytext: pip install 'vit_rpe[docs]'")
    from notebooks import notebook

    shown = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    made = notebook(script.stem)
    again = "run `python docs/make/notebooks.py " + script.stem + "`"
    assert [(cell.cell_type, cell.source) for cell in shown.cells] == [
        (cell.cell_type, cell.source) for cell in made.cells
    ], again
    assert not [out for cell in shown.cells for out in cell.get("outputs", []) if out.output_type == "error"]
    assert any(cell.get("outputs") for cell in shown.cells), "it was not run: " + again
    assert script.with_suffix(".ipynb").stat().st_size < 500_000


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(script: Path) -> None:
    environment = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
