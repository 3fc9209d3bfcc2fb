"""irpe: the piecewise index, bucket counts, the bucket of prefix tokens, what is created and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.encodings.build import build
from vit_rpe.encodings import create_encoding
from vit_rpe.encodings.irpe import count_reached, level_starts, piecewise
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import dense_bias, dense_index

H, D = 2, 4
GRID = TokenGrid((3, 5))
CLASS = TokenGrid((3, 5), num_prefix=1)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(1.9, [0, 1, 2, 2, 3, 3, 3, 3, 3, 3]), (3.0, [0, 1, 2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6])],
)
def test_piecewise_values(ratio: float, expected: list[int]) -> None:
    assert [piecewise(x, ratio) for x in range(len(expected))] == expected
    assert piecewise(10_000, ratio) == expected[-1]


@pytest.mark.parametrize("ratio", [0.5, 0.7, 1.0, 1.2, 1.9, 2.5, 3.0, 4.7, 10.0])
def test_counting_starts_is_the_piecewise_index(ratio: float) -> None:
    distances = torch.arange(200)
    levels = count_reached(distances, level_starts(ratio))
    assert levels.tolist() == [piecewise(x, ratio) for x in range(200)]


def test_euclidean_distances_are_rounded_first() -> None:
    grid = TokenGrid((9, 11))
    encoding = build("irpe", grid, {"method": "euclidean", "ratio": 3.0})
    index = dense_index(encoding(grid, grid), encoding(grid, grid).on_query[0])
    expected = [piecewise(round(math.hypot(i // 11, i % 11)), 3.0) for i in range(grid.num_patches)]
    assert index[:, 0].tolist() == expected


@pytest.mark.parametrize(("method", "buckets"), [("product", 49), ("cross", 7), ("euclidean", 4), ("quantization", 4)])
@pytest.mark.parametrize("mode", ["contextual", "bias"])
def test_number_of_buckets(method: str, buckets: int, mode: str) -> None:
    for grid, extra in ((GRID, 0), (CLASS, 1)):
        encoding = create_encoding({"name": "irpe", "method": method, "mode": mode}, H, D, grid)
        shapes = {tuple(parameter.shape) for parameter in encoding.parameters()}
        assert shapes == {(buckets + extra, D) if mode == "contextual" else (H, buckets + extra)}
        assert len(list(encoding.parameters())) == (2 if method == "cross" else 1)


@pytest.mark.parametrize("method", ["product", "cross"])
def test_every_pair_with_a_prefix_token_has_the_last_bucket(method: str) -> None:
    grid = TokenGrid((2, 3), num_prefix=2)
    terms = build("irpe", grid, {"method": method, "mode": "bias"})(grid, grid)
    bias = dense_bias(terms)
    assert bias is not None
    last = bias[:, 0, 0]
    touches = torch.ones(8, 8, dtype=torch.bool)
    touches[2:, 2:] = False
    torch.testing.assert_close(bias[:, touches], last[:, None].expand(H + 1, int(touches.sum())))
    assert not torch.isclose(bias[:, ~touches], last[:, None]).any()


def test_tables_follow_the_sides() -> None:
    sides = create_encoding({"name": "irpe", "on": ["v", "q"], "method": "cross"}, H, D, GRID)
    assert {name for name, _ in sides.named_parameters()} == {"table_v_h", "table_v_w", "table_q_h", "table_q_w"}
    terms = sides(GRID, GRID)
    assert (len(terms.on_query), len(terms.on_key), len(terms.on_value)) == (0, 2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "euclid"}, "did you mean 'euclidean'"),
        ({"mode": "context"}, "did you mean 'contextual'"),
        ({"on": ("k", "x")}, "unknown on 'x'"),
        ({"on": ()}, "each once"),
        ({"on": ("k", "k")}, "each once"),
        ({"on": "qk"}, "must be a tuple"),
        ({"mode": "bias", "on": ("q",)}, "the same on queries and keys"),
        ({"mode": "bias", "on": ("k", "v")}, "the same on queries and keys"),
        ({"ratio": 0.4}, "at least 0.5"),
        ({"ratio": math.inf}, "finite"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_encoding({"name": "irpe", **options}, H, D, GRID)


@pytest.mark.parametrize(("size", "names"), [((2, 3), "hw"), ((2, 3, 4), "thw")])
def test_cross_has_a_table_for_each_axis(size: tuple[int, ...], names: str) -> None:
    encoding = create_encoding({"name": "irpe", "method": "cross"}, H, D, TokenGrid(size))
    assert list(encoding.state_dict()) == [f"table_k_{letter}" for letter in names]


def test_cross_in_one_dimension_is_product() -> None:
    with pytest.raises(ValueError, match="it is 'product'"):
        create_encoding({"name": "irpe", "method": "cross"}, H, D, TokenGrid((5,)))
