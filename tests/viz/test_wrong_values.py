"""Every public function of ``viz``, given a wrong value for any of its arguments, says so in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.viz.build import CHANNELS, HEIGHT, WIDTH, images, vision_model
from vit_rpe import viz
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz.explorer.write import explorer_page
from vit_rpe.viz.plots.extrapolation import plot_extrapolation

NAN = float("nan")
NUMBER = ([], True, 1.5, -99, 99, "x", (0,), NAN, np.array([0, 1]))
LAYER, HEAD = (*NUMBER, None), (*NUMBER, -1)
SOME = ([], 0, True, 3.5, "01", ["0"], [True], [1.5], [-99], [99], [[0]], [None], {0: 0}, torch.tensor([0.0]))
QUERY = (
    [], True, 1.5, -1, 99, "x", "5,9", NAN, (0,), (0, 99), (-1, 0), (1.5, 0), (True, 0), (0, 0, 0), np.zeros((1, 2)),
)  # fmt: skip
NAMES = ([], ["a"], ["a", "b", "c"], "ab", 7)
SHARE = (1.5, -1, NAN, float("inf"), True, "x", None)
PIXELS = torch.rand(2, CHANNELS, HEIGHT, WIDTH)
IMAGES = (
    PIXELS[:1], PIXELS[:0], PIXELS[0], PIXELS.repeat(1, 2, 1, 1), (PIXELS * 255).to(torch.uint8), PIXELS.numpy(), None,
    "x", PIXELS * NAN, torch.rand(3, CHANNELS, HEIGHT, WIDTH), PIXELS[..., :0], PIXELS * 255, 4 * PIXELS - 2,
)  # fmt: skip
GRID = TokenGrid((3, 5), num_prefix=5)
GRIDS = ((3, 5), None, 3, TokenGrid((20,)))
MAPS = torch.rand(2, 3, 20, 20).softmax(-1)
CURVE = {"epoch": 1, "train_loss": 1, "test_loss": 1, "train_accuracy": 0.5, "test_accuracy": 0.5, "lr": 1}
POINT = {"label": "a", "changed": "size", "factor": 1, "measure": "accuracy", "result": 0.5}
DEVICES = ("gpu", "cuda:77", 3.5, True)

Table = dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]]


@pytest.fixture(scope="module")
def table() -> Table:
    """By name: the function, arguments it takes, and wrong values of any of them."""
    model, x = vision_model(["bias", "rope"]), images()
    with torch.no_grad(), viz.record(model) as seen:
        model(x)
    found: Table = {
        "plot_images": (
            viz.plot_images,
            {"seen": seen, "pixels": PIXELS},
            {"pixels": IMAGES, "layer": LAYER, "heads": SOME, "query": (*QUERY, None), "names": NAMES},
        ),
        "plot_layers": (
            viz.plot_layers,
            {"seen": seen, "pixels": PIXELS},
            {"pixels": IMAGES, "image": (*NUMBER, -1, 2), "layers": SOME, "heads": SOME, "query": (*QUERY, None),
             "maps": (1, None, "x", True, "gradient_weighted")},
        ),
        "plot_split": (
            viz.plot_split,
            {"seen": seen, "pixels": PIXELS},
            {"pixels": IMAGES, "image": (*NUMBER, -1, 2), "layer": LAYER, "heads": SOME, "query": (*QUERY, None)},
        ),
        "plot_rollout": (
            viz.plot_rollout,
            {"seen": seen, "pixels": PIXELS},
            {"pixels": IMAGES, "query": (*QUERY, None), "names": NAMES},
        ),
        "plot_distance": (viz.plot_distance, {"seen": seen}, {"layers": SOME}),
        "plot_bias": (viz.plot_bias, {"seen": seen}, {"layers": SOME, "heads": SOME}),
        "plot_frequencies": (viz.plot_frequencies, {"seen": seen}, {"layers": SOME}),
        "plot_tokens": (
            viz.plot_tokens,
            {"seen": seen, "query_labels": list("abcdefghijklmnopqrst")},
            {"query_labels": NAMES, "key_labels": NAMES, "sample": (*NUMBER, -1, 2), "layer": LAYER, "heads": SOME},
        ),
        "explorer_page": (
            explorer_page,
            {"seen": seen, "pixels": PIXELS, "names": ["a", "b"], "title": "t"},
            {"pixels": IMAGES, "names": NAMES, "captions": NAMES, "bits": (1, 17, True, 8.5, "8", 0), "layers": SOME},
        ),
        "plot_curves": (viz.plot_curves, {"rows": [CURVE]}, {"rows": ([], None, "x", [{}], [1], [{"epoch": 1}])}),
        "plot_extrapolation": (
            plot_extrapolation,
            {"rows": [POINT]},
            {"rows": ([], "x", [{}], [{**POINT, "changed": "sise"}], [{**POINT, "measure": "acc"}])},
        ),
        "rollout": (viz.rollout, {"maps": [MAPS]}, {"maps": ([], "x", [1], MAPS), "residual": SHARE}),
        "mean_distance": (
            viz.mean_distance,
            {"weights": MAPS, "q": GRID, "k": GRID},
            {"weights": (None, [1], MAPS.numpy(), MAPS[0]), "q": GRIDS, "k": GRIDS},
        ),
        "by_offset": (
            viz.by_offset,
            {"values": MAPS[0], "q": GRID, "k": GRID},
            {"values": (None, [1], MAPS.numpy(), MAPS), "q": GRIDS, "k": GRIDS},
        ),
        "picture_range": (viz.picture_range, {"q": GRID, "k": GRID}, {"q": GRIDS, "k": GRIDS}),
        "rotation_frequencies": (
            viz.rotation_frequencies,
            {"rotation": (MAPS[0, 0], MAPS[0, 0]), "grid": GRID},
            {
                "rotation": (None, MAPS[0, 0], (MAPS[0, 0],), (MAPS[0, 0], MAPS[0, 0, :3]), "x", (1, 2)),
                "grid": (*GRIDS[:3], TokenGrid((19,))),
            },
        ),
        "record": (
            lambda **given: viz.record(**given).__enter__(),
            {"model": model},
            {"model": (None, "x", torch.nn.Linear(2, 2), type(model)), "device": DEVICES},
        ),
        "record_class": (
            viz.record_class,
            {"model": model, "x": x},
            {"model": (None, "x"), "x": (None, x.numpy(), x[:0], "x", x * NAN), "device": DEVICES,
             "target": (True, 1.5, -1, 99, "x", [], [0, 1, 2], NAN)},
        ),
    }  # fmt: skip
    gradients = viz.record_class(model, x)
    one = ("attention", "content", "position", "gradient_weighted", "bias", "head", "call", "rollout")
    for name in (*one, "some_terms", "by_offset", "distance", "grids", "sight", "pools", "map_grid", "heads"):
        method = getattr(gradients, name)
        wrong = {"layer": LAYER, "head": HEAD, "query": QUERY, "residual": SHARE, "mean": ("x", True, 1)}
        taken = inspect.signature(method).parameters
        given = {key: 0 for key in ("layer", "head") if key in taken}
        found[f"Recording.{name}"] = (method, given, {key: wrong[key] for key in taken})
    return found


def test_the_table_has_every_function(table: Table) -> None:
    functions = {name for name in viz.__all__ if inspect.isroutine(getattr(viz, name))}
    methods = inspect.getmembers(viz.Recording, inspect.isfunction)
    recording = {f"Recording.{name}" for name, _ in methods if not name.startswith("_")}
    assert functions | recording - {"Recording.pieces"} <= set(table)  # the deprecated name of call
    for name, (function, base, wrong) in table.items():
        if not name.startswith(("plot", "explorer")):  # these have tests of their own, and take a while to draw
            function(**base)
        taken = inspect.signature(function).parameters
        assert "given" in taken or set(wrong) <= set(taken)


def _cells(table: Table) -> Iterator[tuple[str, str, Any]]:
    for name, (_, _, wrong) in table.items():
        for argument, values in wrong.items():
            yield from ((name, argument, value) for value in values)


def test_wrong_values_are_refused_in_words(table: Table) -> None:
    told = {"seen", "layers", "heads", "captions", "maps"}
    bad = []
    for name, argument, value in _cells(table):
        function, base, _ = table[name]
        try:
            function(**{**base, argument: value})
        except ValueError as error:
            words = argument.rstrip("s") if argument in told else argument
            said = str(error)
            if argument in ("layer", "layers", "heads", "head", "image", "query", "pixels", "captions", "residual"):
                bad += [] if words in said else [f"{name}({argument}={value!r}): {said}"]
        except Exception as error:
            bad.append(f"{name}({argument}={value!r}): {type(error).__name__} {error}")
        else:
            bad.append(f"{name}({argument}={value!r}) was taken")
    assert not bad, "\n".join(bad)


def test_right_values_of_any_kind_are_taken(table: Table) -> None:
    """Numbers of NumPy and torch, lists for positions, negative layers, names that are no text."""
    seen = table["plot_images"][1]["seen"]
    expected = seen.attention(1, 2, (1, 3))
    for layer, head, query in ((-3, np.int64(2), [1, 3]), (torch.tensor(1), 2, np.array([1, 3])), (1, 2, 5 + 8)):
        torch.testing.assert_close(seen.attention(layer, head, query), expected, rtol=0, atol=0)
    figure = viz.plot_images(seen, PIXELS, layer=-3, heads=np.array([2]), query=[1, 3], names=[7, 8])  # type: ignore[arg-type]
    assert "layer 1: attention of patch (1, 3)" in figure.get_suptitle()
    for layers in (range(2), (0, -1), np.arange(3), (number for number in (0, 1))):
        viz.plot_layers(seen, PIXELS, layers=layers, image=np.int64(1))  # type: ignore[arg-type]
