"""iRPE-DeiT: every recipe that its code registers, on keys, queries and values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import vit_rpe
from tests.exchange.published.vit import draw, encoded, patches, shapes_of_vit

DIM, HEADS, SIDE = 16, 2, 4
WIDTH = DIM // HEADS
RECIPES = {"product": 1.9, "euclidean": 20, "quantization": 33, "cross": 20}


def file(
    method: str, sides: str, mode: str = "weight", heads: int = 1, ratio: float | None = None
) -> dict[str, Tensor]:
    shapes = shapes_of_vit(DIM, 2, (4, 4), 5)
    shapes["pos_embed"] = (1, 1 + SIDE * SIDE, DIM)
    reach = int(2 * (RECIPES[method] if ratio is None else ratio))
    rows = 1 + ((2 * reach + 1) ** 2 if method == "product" else 2 * reach + 1)
    for layer in range(2):
        for side in sides:
            shape = {"bias": (heads, rows), "weight": (heads, rows, WIDTH) if side == "v" else (heads, WIDTH, rows)}
            for part in ("rp_rows.", "rp_cols.") if method == "cross" else ("",):
                shapes[f"blocks.{layer}.attn.rpe_{side}.{part}lookup_table_{mode}"] = shape[mode]
    return draw(shapes)


def step(x: float, ratio: float) -> int:
    """Equation 18, for alpha : beta : gamma = 1 : 2 : 8."""
    if abs(x) <= ratio:
        return round(x)
    far = ratio + math.log(abs(x) / ratio) / math.log(8) * ratio
    return int(math.copysign(min(round(far), 2 * ratio), x))


def rows_of(method: str, ratio: float, i: int, j: int) -> dict[str, int]:
    """Row of the table (of rows and of columns) for tokens i and j; the last one where one is the class token."""
    reach = int(2 * ratio)
    parts = ("rp_rows.", "rp_cols.") if method == "cross" else ("",)
    if 0 in (i, j):
        return dict.fromkeys(parts, -1)
    (top, left), (low, right) = divmod(i - 1, SIDE), divmod(j - 1, SIDE)
    dh, dw = top - low, left - right
    if method == "product":
        return {"": (step(dh, ratio) + reach) * (2 * reach + 1) + step(dw, ratio) + reach}
    if method == "cross":
        return {"rp_rows.": step(dh, ratio) + reach, "rp_cols.": step(dw, ratio) + reach}
    distance = round(math.hypot(dh, dw)) if method == "euclidean" else dh * dh + dw * dw
    return {"": step(distance, ratio) + reach}


def original(weights: dict[str, Tensor], image: Tensor, method: str, ratio: float) -> Tensor:
    weights = {name: value.double() for name, value in weights.items()}
    x = torch.cat([weights["cls_token"][0], patches(image.double(), weights)]) + weights["pos_embed"][0]

    def tables(layer: int, side: str, kind: str, i: int, j: int) -> list[Tensor]:
        """The rows that i and j find, (H or 1, D) each, or (H or 1,) of a bias."""
        found = []
        for part, row in rows_of(method, ratio, i, j).items():
            table = weights.get(f"blocks.{layer}.attn.rpe_{side}.{part}lookup_table_{kind}")
            if table is not None:
                found.append(table[:, row] if kind == "bias" or side == "v" else table[:, :, row])
        return found

    def meet(layer: int, head: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
        q, scaled = q * WIDTH**-0.5, k * WIDTH**-0.5
        logit = q @ k
        for row in tables(layer, "k", "weight", i, j):
            logit = logit + q @ row[0]
        for row in tables(layer, "q", "weight", j, i):
            logit = logit + scaled @ row[0]
        for row in tables(layer, "k", "bias", i, j) + tables(layer, "q", "bias", j, i):
            logit = logit + row[head if len(row) > 1 else 0]
        return logit

    def extra(layer: int, i: int, j: int) -> Tensor:
        return sum((row[0] for row in tables(layer, "v", "weight", i, j)), start=torch.zeros(WIDTH).double())

    return encoded(x, weights, HEADS, meet, eps=1e-6, extra=extra)


@pytest.mark.parametrize(
    ("method", "sides", "mode", "heads"),
    [
        ("product", "qkv", "weight", 1),
        *(pytest.param(method, "qkv", "weight", 1, marks=pytest.mark.exhaustive) for method in list(RECIPES)[1:]),
        ("euclidean", "k", "weight", 1),
        ("product", "qk", "bias", HEADS),
        ("cross", "k", "bias", HEADS),
    ],
)
def test_the_same_features(method: str, sides: str, mode: str, heads: int) -> None:
    weights = file(method, sides, mode, heads)
    model = vit_rpe.from_published(weights)
    image = torch.randn(3, 4 * SIDE, 4 * SIDE)
    theirs = original(weights, image, method, RECIPES[method])
    with torch.no_grad():
        ours = model.forward_features(image[None])[0].double()
    torch.testing.assert_close(ours, theirs, atol=1e-5 * float(theirs.abs().max()), rtol=0)


def test_a_recipe_of_ones_own_is_said() -> None:
    weights = file("euclidean", "k", ratio=1.5)
    image = torch.randn(3, 4 * SIDE, 4 * SIDE)
    with pytest.raises(ValueError, match="tables of 8 rows are of none of the recipes"):
        vit_rpe.from_published(weights)
    rpe = {"name": "irpe", "method": "euclidean", "ratio": 1.5}
    theirs = original(weights, image, "euclidean", 1.5)
    with torch.no_grad():
        ours = vit_rpe.from_published(weights, rpe).forward_features(image[None])[0].double()
    torch.testing.assert_close(ours, theirs, atol=1e-5 * float(theirs.abs().max()), rtol=0)
    with pytest.raises(ValueError, match="needs tables of 50 rows, the file has 8"):
        vit_rpe.from_published(weights, {"name": "irpe", "method": "product", "ratio": 1.9})


def test_a_bias_shared_by_the_heads() -> None:
    weights = file("product", "k", "bias", 1)
    with pytest.raises(ValueError, match="say num_heads="):
        vit_rpe.from_published(weights)
    image = torch.randn(3, 4 * SIDE, 4 * SIDE)
    theirs = original(weights, image, "product", 1.9)
    with torch.no_grad():
        ours = vit_rpe.from_published(weights, num_heads=HEADS).forward_features(image[None])[0].double()
    torch.testing.assert_close(ours, theirs, atol=1e-5 * float(theirs.abs().max()), rtol=0)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="vectors for each of 2 heads"):
        vit_rpe.from_published(file("product", "k", "weight", HEADS))
    with pytest.raises(ValueError, match="distilled"):
        vit_rpe.from_published({**file("product", "k"), "dist_token": torch.zeros(1, 1, DIM)})
    with pytest.warns(UserWarning, match="'irpe' in the file are left out"):
        model = vit_rpe.from_published(file("product", "k"), "bias")
    assert model.blocks[0].attn.rpe.name == "bias"


def test_another_size() -> None:
    model = vit_rpe.from_published(file("product", "k"))
    model.set_input_size((12, 20))
    assert model(torch.randn(1, 3, 12, 20)).shape == (1, 5)
