"""Figures: they can be drawn without a warning, show what the tensors say, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.viz.build import DEPTH, GRID, HEADS, HEIGHT, WIDTH, images, vision_model
from vit_rpe import viz
from vit_rpe.models.sequence.model import SequenceTransformer
from vit_rpe.viz import Recording
from vit_rpe.viz.plots.canvas import ATTENTION
from vit_rpe.viz.plots.overlay import plot_overlays


def recorded(rpe: str = "bias", **options: object) -> tuple[Recording, torch.Tensor]:
    model, x = vision_model(rpe, **options), images()
    with torch.no_grad(), viz.record(model) as seen:
        model(x)
    return seen, torch.rand(2, 1, HEIGHT, WIDTH)


def drawn(figure: object) -> np.ndarray:
    """The figure as pixels: whatever is wrong with it shows now."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def test_importing_the_package_draws_nothing_in() -> None:
    code = """
import sys, vit_rpe
assert not {"matplotlib", "vit_rpe.viz"} & set(sys.modules)
vit_rpe.viz.record
assert "matplotlib" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_overlay_shows_the_map() -> None:
    seen, pixels = recorded()
    figure = viz.plot_layers(seen, pixels, layers=[0, 2], heads=[1], query=(1, 3))
    panels = [axes for axes in figure.axes if len(axes.images) == 2]
    assert len(panels) == 2
    for panel, layer in zip(panels, (0, 2), strict=True):
        gray, heat = panel.images
        expected = seen.attention(layer, head=1, query=(1, 3))[0, 5:].reshape(GRID)
        np.testing.assert_allclose(heat.get_array(), expected)
        assert heat.get_extent() == gray.get_extent() == [-0.5, WIDTH - 0.5, HEIGHT - 0.5, -0.5]
        np.testing.assert_allclose(gray.get_array() / 255, pixels[0, 0], atol=0.002)
        outline = panel.patches[0]
        assert outline.get_xy() == (3 * WIDTH / GRID[1] - 0.5, HEIGHT / GRID[0] - 0.5)
        assert panel.get_xlabel() == f"to {100 * float(expected.max()):.2g} %"
        assert heat.get_clim() == (0, pytest.approx(float(expected.max())))
    drawn(figure)


def test_overlays_have_the_image_beside_them_and_a_colour_bar() -> None:
    seen, pixels = recorded()
    for figure, rows in (
        (viz.plot_layers(seen, pixels, image=1, layers=[0, 2], query=(1, 3)), 2),
        (viz.plot_split(seen, pixels, image=1, query=(1, 3)), 3),
    ):
        alone = [axes for axes in figure.axes if len(axes.images) == 1]
        assert len(alone) == rows
        assert alone[0].get_title() == "image"
        for axes in alone:
            np.testing.assert_allclose(axes.images[0].get_array(), pixels[1, 0])
            assert len(axes.patches) == 1  # the query
        assert [text.get_text() for text in figure.axes[-1].get_yticklabels()] == ["0", "largest"]


def test_the_dots_of_heads_can_be_told_apart() -> None:
    seen, _ = recorded()
    dots, bar = viz.plot_distance(seen, layers=[0, 3]).axes
    expected = viz.mean_distance(seen.attention(3), *seen.grids(3)).mean(dim=0)
    np.testing.assert_allclose(dots.collections[1].get_offsets()[:, 1], expected, rtol=1e-5)
    assert len({tuple(colour) for colour in dots.collections[1].get_facecolors()}) == HEADS
    assert dots.get_ylim()[1] > float(expected.max())
    assert bar.get_ylabel() == "head"
    assert bar.get_ylim() == (-0.5, HEADS - 0.5)  # one field a head
    assert [text.get_text() for text in bar.get_yticklabels()] == [str(head) for head in range(HEADS)]


def test_one_layer_has_one_tick() -> None:
    figure = viz.plot_distance(recorded()[0], layers=[1])
    drawn(figure)
    panel = figure.axes[0]
    low, high = panel.get_xlim()
    assert [tick for tick in panel.get_xticks() if low <= tick <= high] == [1]


def test_every_picture_of_images() -> None:
    seen, pixels = recorded("lookhere")
    names = ["a $ b", "x" * 60]
    for figure in (
        viz.plot_images(seen, pixels, names=names, heads=[0, 2]),
        viz.plot_layers(seen, pixels, image=1, maps="content", query="class"),
        viz.plot_layers(seen, pixels, maps="position"),
        viz.plot_rollout(seen, pixels, query=(2, 4), names=names),
        viz.plot_split(seen, pixels.expand(-1, 3, -1, -1), query="class"),
        viz.plot_distance(seen),
        viz.plot_bias(seen),
    ):
        drawn(figure)


def test_the_bias_picture_is_centred_and_shares_its_scale() -> None:
    seen, _ = recorded("bias")
    figure = viz.plot_bias(seen, layers=[1, 3])
    drawn(figure)
    panels = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(panels) == 2 * HEADS
    limits = {panel.get_clim() for panel in panels}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low == -high
    assert high == pytest.approx(max(float(np.abs(panel.get_array()).max()) for panel in panels))
    table = viz.by_offset(seen.bias(1), *seen.grids(1))
    np.testing.assert_allclose(panels[0].get_array(), table[0])
    assert panels[0].get_extent() == [-4.5, 4.5, 2.5, -2.5]


def test_hidden_keys_are_grey_not_a_number() -> None:
    seen, _ = recorded("lookhere")
    panel = next(axes.images[0] for axes in viz.plot_bias(seen).axes if axes.images)
    assert np.ma.getmaskarray(panel.get_array()).any()


def test_constant_maps_are_plain() -> None:
    seen, pixels = recorded("none")
    seen.calls = {
        name: (module, {**call, "x": torch.zeros_like(call["x"])}) for name, (module, call) in seen.calls.items()
    }
    pixels = torch.full_like(pixels, 0.5)
    for figure in (viz.plot_layers(seen, pixels), viz.plot_bias(seen), viz.plot_rollout(seen, pixels)):
        drawn(figure)
    heat = viz.plot_layers(seen, pixels, layers=[0], heads=[0]).axes[1].images[1]
    np.testing.assert_allclose(heat.get_array(), 1 / 20, rtol=1e-5)
    zeros = plot_overlays(pixels[:1], [[("", torch.zeros(15))]], seen.grids(0)[0], row_labels=[""], title="")
    drawn(zeros)


@pytest.mark.parametrize("rpe", ["rope", "rope_mixed"])
def test_frequencies(rpe: str) -> None:
    seen, _ = recorded(rpe)
    figure = viz.plot_frequencies(seen)
    shown = [axes for axes in figure.axes if axes.get_visible() and axes.get_title()]
    assert len(shown) == (1 if rpe == "rope" else DEPTH)
    drawn(figure)


def test_panels_above_an_empty_place_have_their_ticks() -> None:
    seen, _ = recorded("rope_mixed", depth=6)
    figure = viz.plot_frequencies(seen)
    drawn(figure)
    shown = [axes for axes in figure.axes if axes.get_visible() and axes.get_title()]
    ticks = [any(tick.label1.get_visible() for tick in axes.xaxis.get_major_ticks()) for axes in shown]
    assert ticks == [False, False, True, True, True, True]
    assert [bool(axes.get_xlabel()) for axes in shown] == ticks
    assert [bool(axes.get_ylabel()) for axes in shown] == [True, False, False, False, True, False]


@pytest.mark.parametrize(("rpe", "told"), [("bias", False), ("rope", True), ("shaw", True)])
def test_the_bias_picture_says_where_it_depends_on_content(rpe: str, told: bool) -> None:
    title = viz.plot_bias(recorded(rpe)[0], layers=[0]).get_suptitle()
    assert ("for the mean content" in title) == told
    assert "key minus query" in title


def test_frequencies_need_a_rotation() -> None:
    with pytest.raises(ValueError, match="layer 0 does not rotate"):
        viz.plot_frequencies(recorded("bias")[0])


def test_sequences() -> None:
    model = SequenceTransformer(11, 9, 5, rpe="t5", embed_dim=24, depth=2, num_heads=3, class_token=True).eval()
    with torch.no_grad(), viz.record(model) as seen:
        model(torch.randint(0, 11, (2, 7)))
    labels = ["class token", "a", " b", "\n", " ", "$$", "\t", "."]
    figure = viz.plot_tokens(seen, labels, sample=1, layer=0, heads=[2])
    panel = next(axes for axes in figure.axes if axes.images)
    np.testing.assert_allclose(panel.images[0].get_array(), seen.attention(0, head=2)[1])
    assert panel.images[0].get_cmap().name == ATTENTION
    assert [text.get_text() for text in panel.get_xticklabels()][:7] == [
        "class token",
        "a",
        "␣b",
        "⏎",
        "␣",
        r"\$\$",
        "⇥",
    ]
    drawn(figure)
    toeplitz = viz.plot_bias(seen, layers=[1])
    matrix = np.asarray(toeplitz.axes[0].images[0].get_array())[1:, 1:]
    np.testing.assert_allclose(matrix[1:, 1:], matrix[:-1, :-1], atol=1e-6)
    drawn(toeplitz)
    with pytest.raises(ValueError, match="3 query labels and 3 key labels do not fit a map of 8 queries"):
        viz.plot_tokens(seen, ["a", "b", "c"])
    with pytest.raises(ValueError, match="does not attend over a whole image"):
        viz.plot_images(seen, torch.rand(2, 1, 4, 4))


def test_curves() -> None:
    rows = [
        {
            "epoch": e,
            "train_loss": 2 / (e + 1),
            "test_loss": 1.0,
            "train_accuracy": 0.3,
            "test_accuracy": 0.1 * e,
            "lr": 0.1,
        }
        for e in range(4)
    ]
    figure = viz.plot_curves(rows)
    assert "best test 30.00 % at epoch 3" in figure.axes[1].get_title()
    drawn(figure)
    drawn(viz.plot_curves(rows[:1]))
    with pytest.raises(ValueError, match="no rows"):
        viz.plot_curves([])


def test_an_unknown_kind_of_map() -> None:
    seen, pixels = recorded()
    with pytest.raises(ValueError, match="unknown maps 'contents' \\(did you mean 'content'"):
        viz.plot_layers(seen, pixels, maps="contents")
