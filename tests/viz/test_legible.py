"""Figures can be read: no text lies on another or leaves the figure, lines are few, named and coloured by family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.viz.build import HEIGHT, PATCH, WIDTH, images, vision_model
from vit_rpe import viz
from vit_rpe.benchmark import report
from vit_rpe.benchmark.measuring.compare import Result
from vit_rpe.benchmark.measuring.memory import Peak
from vit_rpe.encodings import list_encodings
from vit_rpe.models import VisionTransformer
from vit_rpe.models.sequence.model import SequenceTransformer
from vit_rpe.study.plan import read_study
from vit_rpe.training.metrics import Evaluation
from vit_rpe.training.reporting.pictures import plot_confusion
from vit_rpe.viz.plots.extrapolation import plot_extrapolation
from vit_rpe.viz.plots.families import FAMILIES, MOST_LINES, encoding_family, family_of_label
from vit_rpe.viz.plots.overlay import plot_overlays
from vit_rpe.viz.plots.paint import times_uniform

LABELS = [variant.label for variant in read_study("study/digits").variants]


def seen_of(rpe: Any, **options: Any) -> tuple[viz.Recording, torch.Tensor]:
    x = images()
    if isinstance(rpe, dict):  # its start is to be seen
        size = {"img_size": (HEIGHT, WIDTH), "patch_size": PATCH, "in_chans": 1, "class_token": True, "reg_tokens": 4}
        model = VisionTransformer(**size, embed_dim=24, depth=4, num_heads=3, rpe=rpe).eval()
    else:
        model = vision_model(rpe, **options)
    with torch.no_grad(), viz.record(model) as seen:
        model(x)
    return seen, torch.rand(2, 1, *x.shape[-2:])


def curve_rows() -> list[dict[str, float]]:
    return [
        {"epoch": e, "train_loss": 1 / e, "test_loss": 1 / e, "train_accuracy": 0.1, "test_accuracy": 0.1, "lr": 7e-4}
        for e in range(1, 5)
    ]


def text_tokens() -> Any:
    model = SequenceTransformer(11, 9, 5, rpe="t5", embed_dim=24, depth=2, num_heads=3, class_token=True).eval()
    with torch.no_grad(), viz.record(model) as seen:
        model(torch.randint(0, 11, (2, 7)))
    return viz.plot_tokens(seen, ["class token", *"a long la"[:7]], heads=[0, 1])


def extrapolation(count: int) -> Any:
    rows = [
        {"label": label, "changed": changed, "factor": f, "measure": "accuracy", "result": 0.9 / (1 + f) + 1e-4 * i}
        for i, label in enumerate(LABELS[:count])
        for changed, factors in (("size", (1.0, 1.5, 2.0)), ("shift", (0.0, 0.1)))
        for f in factors
    ]
    return plot_extrapolation(rows)


def benchmark_curves(folder: Path) -> Any:
    kept: list[Any] = []
    results = [
        Result(f"{side}x{side}", name, "none", 7.65e-4 * side * (1 + 0.01 * i), None, Peak(10**8 * side + i, 0, 1, 1))
        for i, name in enumerate(("none", *list_encodings()[:12]))
        for side in (7, 14, 28, 56)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", lambda self, *a, **k: kept.append(self))
        report.draw_curves(results, folder / "x.png")
    return kept[0]


def confusion() -> Any:
    counts = torch.randint(0, 90, (10, 10))
    result = Evaluation(loss=0.1, top1=0.5, top5=0.9, calibration_error=0.1, count=int(counts.sum()), confusion=counts)
    return plot_confusion(result, [f"a class of a long name {n}" for n in range(10)])


FIGURES: dict[str, Callable[[Path], Any]] = {
    "plot_images": lambda _: viz.plot_images(*seen_of("bias"), names=["cat\ntaken for automobile", "x" * 60]),
    "plot_layers": lambda _: viz.plot_layers(*seen_of("lookhere"), query=(1, 3)),
    "plot_layers of weak positions": lambda _: viz.plot_layers(*seen_of("bias"), maps="position"),
    "plot_split": lambda _: viz.plot_split(*seen_of("bias"), query=(1, 3)),
    "plot_rollout": lambda _: viz.plot_rollout(*seen_of("bias"), query=(1, 3)),
    "plot_distance": lambda _: viz.plot_distance(seen_of("bias")[0]),
    "plot_bias": lambda _: viz.plot_bias(seen_of({"name": "bias", "init": "impulse"})[0]),
    "plot_bias of a function of content": lambda _: viz.plot_bias(seen_of("shaw")[0]),
    "plot_frequencies": lambda _: viz.plot_frequencies(seen_of("rope_mixed", depth=6)[0]),
    "plot_tokens": lambda _: text_tokens(),
    "plot_curves": lambda _: viz.plot_curves(curve_rows()),
    "plot_extrapolation of few": lambda _: extrapolation(10),
    "plot_extrapolation": lambda _: extrapolation(len(LABELS)),
    "plot_confusion": lambda _: confusion(),
    "draw_curves": benchmark_curves,
}


def texts(figure: Any) -> Iterator[tuple[str, Any]]:
    """Every text of a figure that is drawn, and its box."""
    from matplotlib.text import Text

    hidden = {id(text) for axes in figure.axes if not axes.get_visible() for text in axes.findobj(Text)}
    for axes in figure.axes:  # ticks beyond the ends of an axis are not drawn
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                    hidden |= {id(tick.label1), id(tick.label2)}
    for text in figure.findobj(Text):
        if id(text) not in hidden and text.get_visible() and text.get_text().strip():
            yield text.get_text(), Text.get_window_extent(text)


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_lies_on_another_or_leaves_the_figure(name: str, tmp_path: Path) -> None:
    figure = FIGURES[name](tmp_path)
    figure.draw_without_rendering()
    found = list(texts(figure))
    assert found
    for (one, box), (other, place) in combinations(found, 2):
        width = min(box.x1, place.x1) - max(box.x0, place.x0)
        height = min(box.y1, place.y1) - max(box.y0, place.y0)
        assert width <= 1 or height <= 1, f"{one!r} and {other!r} lie on each other"
    for text, box in found:
        outside = max(-box.x0, -box.y0, box.x1 - figure.bbox.x1, box.y1 - figure.bbox.y1)
        assert outside <= 1, f"{text!r} leaves the figure"
        assert "10^" not in text, f"{text!r} is no plain number"


@pytest.mark.parametrize("name", ["plot_extrapolation", "draw_curves"])
def test_lines_are_few_and_differ(name: str, tmp_path: Path) -> None:
    for axes in FIGURES[name](tmp_path).axes:
        lines = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
        assert len(lines) <= MOST_LINES
        looks = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines]
        assert len(set(looks)) == len(looks)
        for line in lines:
            assert line.get_color() == FAMILIES[family_of_label(line.get_label()) or ""]
        assert axes.get_legend() is None


def test_labels_find_their_family() -> None:
    for label, rpe in (("bias_wide", "bias"), ("rope_mixed_axial", "rope_mixed"), ("none_like_pape", "none")):
        assert family_of_label(label) == encoding_family(rpe)
    assert family_of_label("runs/swin bias, seed 1") == encoding_family("bias")
    assert family_of_label("learned resampled") == "embedding"
    assert family_of_label("biased") is None


def test_weak_positions_are_compared_with_the_uniform_share() -> None:
    seen, pixels = seen_of("bias")
    grid = seen.map_grid(0)
    weak = torch.full((15,), 1 / 15)
    weak[2] *= 1.5
    rows = [[("image", None), ("head", weak)]]
    figure = plot_overlays(pixels[:1], rows, grid, row_labels=[""], title="", compared=[True])
    heat = figure.axes[1].images[1]
    np.testing.assert_allclose(heat.get_array(), times_uniform(weak).reshape(3, 5))
    assert heat.get_clim() == (-1, 1)
    assert figure.axes[-1].get_ylabel() == "times the uniform share"
    strong = torch.zeros(15)
    strong[2] = 1
    figure = plot_overlays(pixels[:1], [[("head", strong)]], grid, row_labels=[""], title="", compared=[True])
    assert figure.axes[-1].get_ylabel() == "attention"


def test_rollout_leaves_the_query_out_of_its_colours() -> None:
    seen, pixels = seen_of("bias")
    figure = viz.plot_rollout(seen, pixels, query=(1, 3))
    shares = seen.rollout((1, 3)).weights[0, -15:].reshape(3, 5)
    own, shares[1, 3] = float(shares[1, 3]), 0
    panel = figure.axes[1]
    assert panel.get_xlabel().startswith(f"itself {100 * own:.2g} %, others to ")
    assert panel.images[1].get_clim() == (0, pytest.approx(float(shares.max())))


def test_a_start_that_hides_far_keys_leaves_colours_to_the_others() -> None:
    figure = viz.plot_bias(seen_of({"name": "bias", "init": "impulse"})[0])
    high = figure.axes[0].images[0].get_clim()[1]
    assert high <= 9
    assert "light grey" in figure.get_suptitle()
