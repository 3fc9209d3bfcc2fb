"""The explorer of models with windows, stages, pooled tokens and pooling layers: the page computes the same maps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch

from tests.viz.browser import chromium, opened
from tests.viz.test_browser import rows_of
from vit_rpe.models.families.samples.of_timm import sample
from vit_rpe.viz import Recording, record
from vit_rpe.viz.explorer.write import explorer_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Any:
    with chromium() as found:
        yield found


def written(folder: Path, seen: Recording, x: torch.Tensor, **options: Any) -> Path:
    page = explorer_page(seen, torch.rand(x.shape), names=["a", "b"], title="windows", bits=16, **options)
    path = folder / "explorer.html"
    path.write_text(page, encoding="utf-8")
    return path


CASES = ["swin", "sam", "sam2", "siglip", "maxvit-table", "twins"]
OTHERS = [
    pytest.param(case, marks=pytest.mark.exhaustive)
    for case in ("swinv2_cr", "levit", "dinov3", "tiny_vit", "mvitv2-cls", "gcvit")
]


@pytest.mark.parametrize("case", [*CASES, *OTHERS])
def test_the_page_computes_the_maps(browser: Any, tmp_path: Path, case: str) -> None:
    model, x = sample(case)
    with torch.no_grad(), record(model) as seen:
        model(x)
    rows, columns = seen.image or (0, 0)
    prefix = seen.map_grid(0).num_prefix
    with opened(browser, written(tmp_path, seen, x)) as page:
        for layer in range(len(seen)):
            for mode, maps in (("attention", seen.attention), ("content", seen.content), ("position", seen.position)):
                for at in ((rows - 1, columns - 1), (rows // 2, columns // 3)):
                    expected = maps(layer, query="mean" if seen.pools(layer) else at)[0]
                    found = rows_of(page, layer, mode, prefix + at[0] * columns + at[1])
                    np.testing.assert_allclose(found, expected, rtol=0.01, atol=2e-4)
            expected = seen.attention(layer, query="mean")[0]
            np.testing.assert_allclose(rows_of(page, layer, "attention", "mean"), expected, rtol=0.01, atol=2e-4)


def test_chosen_layers_and_what_they_are_called(browser: Any, tmp_path: Path) -> None:
    model, x = sample("swin")
    with torch.no_grad(), record(model) as seen:
        model(x)
    with opened(browser, written(tmp_path, seen, x, layers=[1, 2])) as page:
        labels = page.evaluate("data.layers.map((each) => each.label)")
        assert labels == ["1 layers.0.blocks.1", "2 layers.1.blocks.0"]
        assert page.locator("#heads .tile").count() == 4
        page.keyboard.press("PageDown")
        assert page.locator("#heads .tile").count() == 2
        assert "1 layers.0.blocks.1" in page.locator("#status").text_content()


def test_a_page_with_too_many_pairs_has_no_mean(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vit_rpe.viz.explorer.write.MOST_PAIRS", 10)
    model, x = sample("swin")
    with torch.no_grad(), record(model) as seen:
        model(x)
    with opened(browser, written(tmp_path, seen, x)) as page:
        assert page.locator("#query-mean").is_hidden()
        assert "patch (6, 9)" in page.locator("#status").text_content()
        page.keyboard.press("a")
        assert "patch (6, 9)" in page.locator("#status").text_content()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "layers"), [("swin_tiny_patch4_window7_224", None), ("samvit_base_patch16", [1, 2])])
def test_images_of_1024_pixels(browser: Any, tmp_path: Path, name: str, layers: list[int] | None) -> None:
    """A page of a windowed and a global layer, or of all windows: small enough, opens and answers at once."""
    model, x = timm.create_model(name, img_size=1024).eval(), torch.rand(1, 3, 1024, 1024)
    with torch.no_grad(), record(model) as seen:
        model(x)
    path = tmp_path / "explorer.html"
    path.write_text(explorer_page(seen, x, names=["noise"], title=name, layers=layers), encoding="utf-8")
    with opened(browser, path, viewport={"width": 1280, "height": 900}) as page:
        opens, answers = page.evaluate("window.explorer.ready.then(() => performance.now() / 1000)"), 0.0
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        for layer in range(page.evaluate("data.layers.length")):
            page.evaluate("(layer) => window.explorer.set({layer})", layer)
            box = page.locator("#picture").bounding_box()
            start = time.monotonic()
            page.mouse.click(box["x"] + (0.3 + layer / 50) * box["width"], box["y"] + 0.4 * box["height"])
            assert "(held)" in page.locator("#status").text_content()
            answers = max(answers, time.monotonic() - start)
            page.keyboard.press("Escape")
    print(f"{name}: {path.stat().st_size / 1e6:.1f} MB, opened in {opens:.2f} s, answered within {answers:.2f} s")
    assert path.stat().st_size < 150e6
    assert opens < 10
    assert answers < 1
