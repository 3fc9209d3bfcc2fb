"""The explorer of models with windows, stages, pooled tokens and pooling layers: the page computes the same maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import nn

from tests.families.cases import build, image, randomize
from tests.viz.browser import chromium, opened
from tests.viz.test_browser import rows_of
from vit_rpe.viz import Recording, record
from vit_rpe.viz.explorer.write import explorer_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Any:
    with chromium() as found:
        yield found


def model_of(case: str) -> tuple[nn.Module, torch.Tensor]:
    if case == "siglip":
        small = {"img_size": (64, 96), "depth": 2, "embed_dim": 24, "num_heads": 3}
        return randomize(timm.create_model("vit_base_patch16_siglip_224", **small)).eval(), torch.randn(2, 3, 64, 96)
    if case == "sam2":
        small = {"embed_dim": 12, "stages": (1, 2, 2, 1), "global_att_blocks": (4,), "window_spec": (8, 4, 6, 7)}
        return randomize(timm.create_model("sam2_hiera_tiny", **small)).eval(), torch.randn(2, 3, 96, 160)
    if case == "twins":
        small = {"depths": (2, 2, 2, 2), "embed_dims": (12, 12, 24, 24), "num_heads": (2, 2, 3, 3)}
        model = timm.create_model("twins_svt_small", img_size=(64, 96), **small)
        return randomize(model).eval(), torch.randn(2, 3, 64, 96)
    return build(case), image(case)


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
    model, x = model_of(case)
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
    model, x = model_of("swin")
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
    model, x = model_of("swin")
    with torch.no_grad(), record(model) as seen:
        model(x)
    with opened(browser, written(tmp_path, seen, x)) as page:
        assert page.locator("#query-mean").is_hidden()
        assert "patch (6, 9)" in page.locator("#status").text_content()
        page.keyboard.press("a")
        assert "patch (6, 9)" in page.locator("#status").text_content()
