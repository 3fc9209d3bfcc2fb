"""LookHere: directed heads, a bias of bfloat16, a classifier of two layers; images need not be square."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import vit_rpe
from tests.exchange.published.vit import draw, encoded, linear, patches, shapes_of_vit
from tests.oracles.lookhere import in_bfloat16

DIM, HEIGHT, WIDTH, DEPTH = 24, 2, 4, 3
CONFIG = {"head_directions": "corners-triangles-none", "global_slope": 1.0, "layer_slopes": [1.5, 0.5]}
DIRECTIONS = {
    12: {180: "halves-none", 90: "corners-triangles-none", 45: "eighths1-eighths2-none"},
    6: {180: "halves-none", 90: "corners-none", 45: "eighths1-none"},
}
# what each head is kept from seeing, by the names of the published code: (dy, dx) of a key seen from the query
BEYOND = {
    "up": lambda dy, dx: dy > 0,
    "down": lambda dy, dx: dy < 0,
    "left": lambda dy, dx: dx > 0,
    "right": lambda dy, dx: dx < 0,
    "tri_up": lambda dy, dx: not (dx >= dy and dx + dy <= 0),
    "tri_down": lambda dy, dx: not (dx <= dy and dx + dy >= 0),
    "tri_left": lambda dy, dx: not (dx <= dy and dx + dy <= 0),
    "tri_right": lambda dy, dx: not (dx >= dy and dx + dy >= 0),
}
GROUPS = {
    "none": [[]] * 4,
    "halves": [["up"], ["down"], ["left"], ["right"]],
    "corners": [["up", "left"], ["up", "right"], ["down", "left"], ["down", "right"]],
    "triangles": [["tri_up"], ["tri_down"], ["tri_left"], ["tri_right"]],
    "eighths1": [["tri_up", "left"], ["tri_down", "left"], ["tri_left", "up"], ["tri_right", "up"]],
    "eighths2": [["tri_up", "right"], ["tri_down", "right"], ["tri_left", "down"], ["tri_right", "down"]],
}


def heads_of(directions: str, count: int) -> list[tuple[list[str], float]]:
    """Directions and slope of every head; slopes are halved after every four of one group."""
    names = directions.split("-")
    many = {(12, 2): [8, 4], (12, 3): [4, 4, 4], (6, 2): [4, 2]}[count, len(names)]
    found: list[tuple[list[str], float]] = []
    for name, number in zip(names, many, strict=True):
        for index in range(number):
            found.append((GROUPS[name][index % 4], 4.0 ** -(index + 1) if name == "none" else 0.5 ** (index // 4 + 1)))
    return found


def file(directions: str = CONFIG["head_directions"]) -> dict[str, Any]:
    shapes = shapes_of_vit(DIM, DEPTH, (4, 4), 5)
    shapes |= {"head.fc1.weight": (4 * DIM, DIM), "head.fc1.bias": (4 * DIM,)}
    shapes |= {"head.fc2.weight": (5, 4 * DIM), "head.fc2.bias": (5,)}
    shapes |= {f"blocks.{layer}.ls{branch}.gamma": (DIM,) for layer in range(DEPTH) for branch in (1, 2)}
    weights = {name: value for name, value in draw(shapes).items() if name not in ("head.weight", "head.bias")}
    return {"weights": weights, "config": {**CONFIG, "head_directions": directions}}


def original(weights: dict[str, Tensor], image: Tensor, directions: str, heads: int) -> Tensor:
    weights = {name: value.double() for name, value in weights.items()}
    x = torch.cat([weights["cls_token"][0], patches(image.double(), weights)])
    looks = heads_of(directions, heads)

    def meet(layer: int, head: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor | None:
        logit = q @ k * (DIM // heads) ** -0.5
        if 0 in (i, j):
            return logit
        (top, left), (low, right) = divmod(i - 1, WIDTH), divmod(j - 1, WIDTH)
        dy, dx = low - top, right - left
        words, slope = looks[head]
        if any(BEYOND[word](dy, dx) for word in words):
            return None
        factor = 1.5 - layer / (DEPTH - 1)
        return logit - in_bfloat16(factor * slope * math.hypot(dy, dx))

    return encoded(x, weights, heads, meet, eps=1e-5)


@pytest.mark.parametrize(
    ("heads", "fov"),
    [
        *[(12, 90), (6, 180)],
        *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in [(12, 180), (12, 45), (6, 90), (6, 45)]),
    ],
)
def test_the_same_features_and_logits(heads: int, fov: int, tmp_path: Path) -> None:
    directions = DIRECTIONS[heads][fov]
    content = file(directions)
    torch.save(content, tmp_path / "weights_and_config.pth")
    model = vit_rpe.from_published(tmp_path / "weights_and_config.pth", num_heads=heads, img_size=(8, 16))
    assert model.blocks[0].attn.rpe.fov == fov
    image = torch.randn(3, 4 * HEIGHT, 4 * WIDTH)
    theirs = original(content["weights"], image, directions, heads)
    with torch.no_grad():
        ours, scores = model.forward_features(image[None])[0].double(), model(image[None])[0].double()
    torch.testing.assert_close(ours, theirs, atol=1e-5 * float(theirs.abs().max()), rtol=0)
    double = {name: value.double() for name, value in content["weights"].items()}
    logits = linear(linear(theirs[0], double, "head.fc1").tanh(), double, "head.fc2")
    torch.testing.assert_close(scores, logits, atol=1e-5 * float(logits.abs().max()), rtol=0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"head_directions": "triangles-corners-none"}, "head_directions='triangles-corners-none' is not ours"),
        ({"head_directions": ["halves-none", "corners-none", "halves-none"]}, "is not ours"),
        ({"global_slope": 0.5}, "global_slope=0.5 is not ours, which has 1.0"),
        ({"layer_slopes": [1.0, 1.0]}, r"layer_slopes=\(1.0, 1.0\) is not ours"),
        ({"distance": "sqrt"}, "distance='sqrt' is not ours"),
    ],
)
def test_other_configurations_are_refused(changed: dict[str, Any], message: str) -> None:
    content = file()
    with pytest.raises(ValueError, match=message):
        vit_rpe.from_published({**content, "config": {**content["config"], **changed}})


def test_a_file_without_its_config() -> None:
    content = file()
    with pytest.raises(ValueError, match="this one has no config"):
        vit_rpe.from_published(content["weights"])
    rpe = {"name": "lookhere", "fov": 90, "rounded": True}
    image = torch.randn(1, 3, 8, 16)
    with torch.no_grad():
        same = vit_rpe.from_published(content["weights"], rpe, img_size=(8, 16))(image)
        torch.testing.assert_close(vit_rpe.from_published(content, img_size=(8, 16))(image), same)


def test_other_classes_and_a_new_head() -> None:
    model = vit_rpe.from_published(file(), num_classes=3, img_size=(8, 16))
    assert model(torch.randn(1, 3, 8, 16)).shape == (1, 3)
    model.reset_classifier(2)
    assert model.head.fc1.out_features == 4 * DIM
    assert model(torch.randn(1, 3, 8, 16)).shape == (1, 2)
    with pytest.raises(ValueError, match="7 heads do not divide"):
        vit_rpe.from_published(file(), num_heads=7)
