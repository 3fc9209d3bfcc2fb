"""The gallery in a browser: for every encoding and setting its code gives the values of the Python class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.viz.browser import chromium, opened
from vit_rpe import TokenGrid, create_encoding, list_encodings
from vit_rpe.attention import AttentionCall
from vit_rpe.cli import main
from vit_rpe.encodings import terms_of_tokens
from vit_rpe.viz.gallery import gallery_page
from vit_rpe.viz.gallery.write import drawn_encodings

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "docs" / "gallery.html"
HEADS, WIDTH = 8, 16
GRIDS = ((3, 5), (7, 4))

SETTINGS = """(name) => {
    const controls = window.explorer.encodings[name].controls;
    const ends = (one) => one.of ?? [one.low, one.high, ...(one.step ? [one.low + one.step] : [])];
    return [{}, ...controls.flatMap((one) => ends(one).map((value) => ({ [one.name]: value })))];
}"""
VALUES = """([name, settings, common]) => {
    const { prepare, row } = window.explorer, found = prepare(name, settings, common), queries = [];
    for (let down = 0; down < common.rows; down++)
        for (let right = 0; right < common.columns; right++) queries.push([down, right]);
    const told = (value) => (value === -Infinity ? "hidden" : value);
    const head = (number) => queries.map((query) => row(found, number, query, common).map(told));
    const { options, native, parameters, q, k, x } = found;
    return { options, native, parameters, q, k, x, values: Array.from({ length: 8 }, (_, number) => head(number)) };
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("gallery") / "gallery.html"
    path.write_text(gallery_page(), encoding="utf-8")
    with chromium() as browser, opened(browser, path) as found:
        yield found


def of_python(name: str, told: dict[str, Any], size: tuple[int, int]) -> torch.Tensor:
    """What the Python class adds to the logits with the page's options, parameters, q, k and x: (H, N, N)."""
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in told["options"].items()}
    spec = {"name": name, **options}
    encoding = create_encoding(spec, HEADS, WIDTH, TokenGrid(tuple(told["native"]))).eval().double()
    own = dict(encoding.named_parameters())
    assert {key: list(value.shape) for key, value in own.items()} == {
        key: value["shape"] for key, value in told["parameters"].items()
    }
    with torch.no_grad():
        for key, parameter in own.items():
            parameter.copy_(torch.tensor(told["parameters"][key]["values"]).view(parameter.shape))
        grid = TokenGrid(size)
        q, k = (
            torch.tensor(told[side], dtype=torch.float64).view(1, HEADS, 1, WIDTH).expand(-1, -1, grid.num_tokens, -1)
            for side in "qk"
        )
        x = torch.tensor(told["x"], dtype=torch.float64).expand(1, grid.num_tokens, -1)
        terms = terms_of_tokens(encoding, grid, grid, x=x)
        call = AttentionCall(q, k, k, terms, None, WIDTH**-0.5, lambda out: out)
        return call.position_logits()[0].expand(HEADS, -1, -1)


@pytest.mark.parametrize("name", drawn_encodings())
def test_the_page_computes_what_the_encoding_computes(page: Any, name: str) -> None:
    settings = page.evaluate(SETTINGS, name)
    for number, each in enumerate(settings):
        size = GRIDS[number % 2]
        common = {"rows": size[0], "columns": size[1], "seed": 3 + number, "roughness": 2}
        told = page.evaluate(VALUES, [name, each, common])
        found = torch.tensor([[[float("-inf") if v == "hidden" else v for v in r] for r in h] for h in told["values"]])
        expected = of_python(name, told, size).to(found.dtype)
        torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4, msg=lambda m, e=each: f"{name} {e}: {m}")
        assert name == "none" or float(found[found.isfinite()].std()) > 1e-4, f"{name} {each}: nothing to see"


def test_every_encoding_is_there(page: Any) -> None:
    assert set(drawn_encodings()) == set(list_encodings())
    assert page.locator("article").count() == len(drawn_encodings())
    for name in drawn_encodings():
        card = page.locator(f"article#{name}")
        assert card.locator("math").count() >= 1
        assert card.locator("merror").count() == 0
        assert len(card.locator("p").first.text_content()) > 60
        assert name == "none" or card.locator("dl a").count() >= 1


def test_pointer_keys_and_sliders(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    card = page.locator("article#alibi")
    card.scroll_into_view_if_needed()
    map_ = card.locator("canvas.map")

    def told(words: str) -> None:
        locator = page.locator(f"article#alibi canvas.map[aria-label*='{words}']")
        locator.wait_for(timeout=20_000)
        offset = words.partition("Δ")[2]
        assert offset in card.locator(".read").text_content()

    map_.focus()
    page.keyboard.press("ArrowUp")
    told("query at row 3, column 6")
    page.keyboard.press("Shift+ArrowLeft")
    told("Δ (0, 1): −0.50")
    page.keyboard.press("h")
    told("Δ (0, 1): −0.25")
    card.locator("#alibi-factor").focus()
    page.keyboard.press("End")
    told("Δ (0, 1): −2.00")
    map_.click(position={"x": 2, "y": map_.bounding_box()["height"] - 2})
    told("row 8, column 0")
    page.locator("#rows").fill("5")
    told("row 4, column 0")
    page.locator("article#rope #rope-base").focus()
    page.keyboard.press("ArrowRight")
    assert float(page.locator("label[for='rope-base'] output").text_content()) == pytest.approx(120, rel=0.05)


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_no_page_is_wider_than_its_screen(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    smallest = page.evaluate(
        "Math.min(...Array.from(document.querySelectorAll('input,select'), (e) => e.getBoundingClientRect().height))"
    )
    assert smallest >= 24


def test_the_shipped_copy_is_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "g.html"
    assert main(["encodings", "--gallery", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert text == SHIPPED.read_text(encoding="utf-8"), "vit-rpe encodings --gallery docs/gallery.html"
    assert not re.search(r"(src|href)=[\"']?https?://(?!arxiv\.org/abs/)", text)
    assert len(text) < 100_000
