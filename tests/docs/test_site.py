"""The site: built without a warning, complete, and asking no other host for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.viz.browser import chromium

ROOT = Path(__file__).resolve().parents[2]
ASSETS = r"<(?:script|link|img|iframe|source|video|object|embed)\b[^>]*?\b(?:src|href|data)=[\"']?([^\"' >]+)"
pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="no mkdocs: pip install 'vit_rpe[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages |= {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.ipynb")}
    assert [page.as_posix() for page in sorted(pages) if not (site / page).is_file()] == []
    assert not list(site.rglob("*.py")), "what makes the site is no part of it"


def test_no_page_asks_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        foreign = [url for url in re.findall(ASSETS, text) if re.match(r"(https?:)?//", url)]
        assert foreign == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", sheet.read_text(encoding="utf-8")) == []


def test_formulas_are_mathml(site: Path) -> None:
    text = (site / "encodings.html").read_text(encoding="utf-8")
    assert text.count("<math") == len(
        re.findall("^```math", (ROOT / "docs" / "encodings.md").read_text(), re.MULTILINE)
    )


def test_a_reference_names_what_a_room_shows(site: Path) -> None:
    import vit_rpe.layers

    text = (site / "reference" / "layers.html").read_text(encoding="utf-8")
    assert all(f'id="vit_rpe.layers.{name}"' in text for name in vit_rpe.layers.__all__)


@pytest.mark.browser
def test_a_browser_asks_no_other_host_and_complains_of_nothing(site: Path) -> None:
    """From disk, as a folder that was mailed would be opened."""
    with chromium() as browser:
        for name in ("index.html", "encodings.html", "tutorials/look_at_attention.html", "reference/layers.html"):
            page = browser.new_page(viewport={"width": 390, "height": 844})
            complaints: list[str] = []
            page.on("pageerror", lambda error, seen=complaints: seen.append(str(error)))
            page.on(
                "request",
                lambda request, seen=complaints: (
                    None if request.url.startswith(("file:", "data:", "blob:")) else seen.append(request.url)
                ),
            )
            page.goto((site / name).as_uri())
            page.wait_for_timeout(500)
            assert complaints == [], name
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 1, f"{name} is wider than a phone by {wide} px"
            page.close()
