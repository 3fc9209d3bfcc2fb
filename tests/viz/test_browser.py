"""The explorer in a browser: what it draws is what the tensors say, by pointer, keyboard and on a small screen."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.viz.browser import chromium, opened
from tests.viz.build import DEPTH, GRID, HEADS, HEIGHT, WIDTH, images, vision_model
from vit_rpe.encodings import encoding_class, list_encodings
from vit_rpe.viz import Recording, record
from vit_rpe.viz.explorer.payload import NOT_SHOWN
from vit_rpe.viz.explorer.write import explorer_page

pytestmark = pytest.mark.browser

PREFIX = 5
ARTIFACTS = Path(__file__).parents[2] / "artifacts"


@pytest.fixture(scope="module")
def browser() -> Any:
    with chromium() as found:
        yield found


def written(folder: Path, rpe: Any, *, bits: int | None = None, **options: Any) -> tuple[Path, Recording]:
    model, x = vision_model(rpe, **options), images()
    with torch.no_grad(), record(model) as seen:
        model(x)
    page = explorer_page(seen, torch.rand(2, 1, HEIGHT, WIDTH), names=["<script>", "b"], title="<b>", bits=bits)
    path = folder / "explorer.html"
    path.write_text(page, encoding="utf-8")
    return path, seen


def rows_of(page: Any, layer: int, mode: str, query: int) -> np.ndarray:
    """Every head's row (H, N) as the page computes it."""
    script = """([layer, mode, query]) => {
        const each = window.explorer.layerAt(layer);
        return Array.from({length: each.heads}, (_, head) => Array.from(each.attention(head, query, mode)));
    }"""
    return np.array(page.evaluate(script, [layer, mode, query]))


CARDS = {name: encoding_class(name).card for name in list_encodings()}
REFUSED = {name: NOT_SHOWN[part] for name, card in CARDS.items() for part in card.adds if part in NOT_SHOWN}
SPECS: list[Any] = [name for name, card in CARDS.items() if 2 in card.axes and name not in REFUSED]
SPECS += [
    ["bias", "rope"],
    {"name": "bias", "prefix": "learned"},
    {"name": "irpe", "on": ("q", "k", "v")},
]


@pytest.mark.parametrize(("rpe", "words"), REFUSED.items())
def test_what_the_page_cannot_compute_is_refused(tmp_path: Path, rpe: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        written(tmp_path, rpe)


@pytest.mark.parametrize("rpe", SPECS, ids=str)
def test_the_page_computes_the_maps(browser: Any, tmp_path: Path, rpe: Any) -> None:
    path, seen = written(tmp_path, rpe)
    with opened(browser, path) as page:
        for mode, maps in (("attention", seen.attention), ("content", seen.content), ("position", seen.position)):
            for query in (0, 3, PREFIX, PREFIX + 8):
                expected = maps(2, query=query)[0]
                np.testing.assert_allclose(rows_of(page, 2, mode, query), expected, rtol=0.01, atol=2e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True, "class_token": False},
        {"window": 1},
        {"class_token": False, "reg_tokens": 0},
        {"logit_clip": 1.5},
    ],
    ids=str,
)
def test_masks_and_clips(browser: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    path, seen = written(tmp_path, "bias", **options)
    with opened(browser, path) as page:
        for mode, maps in (("attention", seen.attention), ("content", seen.content)):
            for query in (1, 12):
                np.testing.assert_allclose(rows_of(page, 1, mode, query), maps(1, query=query)[0], rtol=0.01, atol=2e-4)


@pytest.mark.parametrize(("rpe", "bits"), [("bias", 6), ("rope_mixed", 7), ("shaw", 8), ("bias", 16)])
def test_the_page_says_how_much_rounding_changes(browser: Any, tmp_path: Path, rpe: str, bits: int) -> None:
    path, seen = written(tmp_path, rpe, bits=bits)
    with opened(browser, path) as page:
        told = page.locator("#rounding").text_content()
        assert f"rounded to {bits} bits" in told
        most = float(re.search(r"more than ([\d.e-]+) percentage points", told)[1]) / 100
        largest = 0.0
        for layer in range(DEPTH):
            for mode, maps in (("attention", seen.attention), ("content", seen.content)):
                for query in range(PREFIX + 15):
                    away = np.abs(rows_of(page, layer, mode, query) - maps(layer, query=query)[0].numpy())
                    largest = max(largest, float(away.max()))
        assert largest <= most
        assert most < 0.002 or bits < 16  # and the claim is not an idle one


def canvas_pixels(page: Any, selector: str) -> np.ndarray:
    script = """(selector) => {
        const canvas = document.querySelector(selector), size = [canvas.height, canvas.width];
        return [size, Array.from(canvas.getContext("2d").getImageData(0, 0, size[1], size[0]).data)];
    }"""
    (height, width), values = page.evaluate(script, selector)
    return np.array(values).reshape(height, width, 4)[..., :3]


def colours_of(values: torch.Tensor) -> np.ndarray:
    from matplotlib import colormaps

    steps = np.rint(values.numpy() / float(values.max()) * 255).astype(int)
    return np.rint(colormaps["inferno"](steps / 255)[..., :3] * 255)


def patch_centre(page: Any, row: int, column: int) -> tuple[float, float]:
    box = page.locator("#picture").bounding_box()
    return box["x"] + (column + 0.5) * box["width"] / GRID[1], box["y"] + (row + 0.5) * box[
        "width"
    ] * HEIGHT / WIDTH / GRID[0]


def wait_until(page: Any, condition: str, seconds: float = 20.0) -> None:
    """Ask again and again: the page's own rules forbid Playwright to install a watcher."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


def test_pointer_and_keyboard(browser: Any, tmp_path: Path) -> None:
    path, seen = written(tmp_path, "bias")
    with opened(browser, path, viewport={"width": 1200, "height": 900}) as page:
        assert page.locator("#stage-title").text_content() == "<script>"
        status = page.locator("#status")
        page.mouse.move(*patch_centre(page, 2, 3))
        assert "patch (2, 3)" in status.text_content()
        drawn = canvas_pixels(page, "#heads .tile:nth-child(2) canvas")
        expected = colours_of(seen.attention(-1, head=1, query=(2, 3))[0, PREFIX:].reshape(GRID))
        assert np.abs(drawn - expected).max() <= 12

        page.mouse.click(*patch_centre(page, 1, 4))
        page.mouse.move(*patch_centre(page, 0, 0))
        assert "patch (1, 4)" in status.text_content()
        assert "held" in status.text_content()

        page.keyboard.press("PageDown")
        page.keyboard.press("h")
        page.keyboard.press("h")
        page.locator("#picture").focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowDown")
        shown = page.evaluate("({...window.explorer.shown, row: Array.from(window.explorer.shown.row), rows: null})")
        assert (shown["layer"], shown["head"], shown["query"]) == (DEPTH - 2, 1, PREFIX + 2 * GRID[1] + 3)
        np.testing.assert_allclose(
            shown["row"], seen.attention(DEPTH - 2, head=1, query=(2, 3))[0], rtol=0.01, atol=2e-4
        )

        page.keyboard.press("m")
        assert status.text_content().startswith("content only")
        page.keyboard.press("m")
        assert status.text_content().startswith("position only")
        page.keyboard.press("c")
        assert "class token" in status.text_content()
        page.keyboard.press("a")
        assert "all patches" in status.text_content()
        page.keyboard.press("i")
        wait_until(page, "window.explorer.shown.image === 1")
        assert page.locator("#stage-title").text_content() == "b"
        row = page.evaluate("Array.from(window.explorer.shown.row)")
        np.testing.assert_allclose(row, seen.position(DEPTH - 2, head=1, query="mean")[1], rtol=0.01, atol=2e-4)

        page.select_option("#head", "mean")
        page.locator("#layer").fill("0")
        page.locator("input[value=attention]").check()
        row = page.evaluate("Array.from(window.explorer.shown.row)")
        np.testing.assert_allclose(row, seen.attention(0, query="mean")[1].mean(0), rtol=0.01, atol=2e-4)
        page.keyboard.press("Escape")
        ARTIFACTS.mkdir(exist_ok=True)
        page.wait_for_timeout(300)
        page.screenshot(path=ARTIFACTS / "explorer.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(browser: Any, tmp_path: Path, scheme: str) -> None:
    path, _ = written(tmp_path, "lookhere")
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": scheme}
    with opened(browser, path, **phone) as page:
        page.touchscreen.tap(*patch_centre(page, 1, 1))
        assert "patch (1, 1)" in page.locator("#status").text_content()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        back, ink = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        assert (back, ink) == (
            ("rgb(255, 255, 255)", "rgb(22, 24, 29)")
            if scheme == "light"
            else ("rgb(20, 22, 26)", "rgb(236, 238, 242)")
        )
        ARTIFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTIFACTS / f"explorer-phone-{scheme}.png", full_page=True)


def test_everything_has_a_name(browser: Any, tmp_path: Path) -> None:
    path, _ = written(tmp_path, "bias")
    with opened(browser, path) as page:
        nameless = page.evaluate(
            """Array.from(document.querySelectorAll("button, input, select, [role=application]")).filter((each) =>
                !each.labels?.length && !each.textContent.trim() && !each.getAttribute("aria-label")).length"""
        )
        assert nameless == 0
        assert page.locator("html").get_attribute("lang") == "en"
        headings = page.locator("h1, h2").all_text_contents()
        assert headings[0] == "Where <b> looks"
        assert len(headings) == 5


def test_heads_are_chosen_by_a_click(browser: Any, tmp_path: Path) -> None:
    path, _ = written(tmp_path, "bias")
    with opened(browser, path) as page:
        page.locator("#heads .tile").nth(HEADS - 1).click()
        assert page.evaluate("window.explorer.shown.head") == HEADS - 1
        page.locator("#cell-1-0").click()
        assert page.evaluate("[window.explorer.shown.layer, window.explorer.shown.head]") == [1, 0]


@pytest.mark.slow
def test_a_large_page_opens_quickly(browser: Any, tmp_path: Path) -> None:
    """224 pixels, 12 layers, 6 heads, 4 images; the best of three, because other work may be going on."""
    model = vision_model(img_size=224, patch_size=16, reg_tokens=0, embed_dim=384, num_heads=6, depth=12)
    x = torch.rand(4, 1, 224, 224)
    with torch.no_grad(), record(model) as seen:
        model(x)
    path = tmp_path / "explorer.html"
    path.write_text(explorer_page(seen, x, names=list("abcd"), title="large"), encoding="utf-8")
    seconds = []
    for _ in range(3):
        with opened(browser, path) as page:
            seconds.append(page.evaluate("window.explorer.ready.then(() => performance.now() / 1000)"))
    print(f"{path.stat().st_size / 1e6:.1f} MB, opened in {min(seconds):.2f} s")
    assert min(seconds) < 2
