"""Masks from coordinates: True means that this query sees this key."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from tests.oracles._loops import token_positions
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.masks import (
    GeometricMask,
    as_batch_head,
    causal,
    geometric_mask,
    intersect,
    intersect_geometric,
    neighbourhood,
    padding,
    sliding_window,
)

PAIRS = [
    (TokenGrid((5,)), TokenGrid((5,))),
    (TokenGrid((2, 3), 1), TokenGrid((2, 3), 1)),
    (TokenGrid((1, 2), origin=(1, 1), extent=(3, 4)), TokenGrid((3, 4), 4)),
    (TokenGrid((2, 1, 3), 2), TokenGrid((2, 1, 3), 2)),
    (TokenGrid((1,), origin=(3,)), TokenGrid((4,), 1)),
]


@pytest.mark.parametrize(("q", "k"), PAIRS)
def test_causal_is_raster_order(q: TokenGrid, k: TokenGrid) -> None:
    """Tuples compare in raster order; a prefix query sees the prefix only, everyone sees the prefix."""
    expected = [[j is None or (i is not None and j <= i) for j in token_positions(k)] for i in token_positions(q)]
    assert causal(q, k).tolist() == expected


@pytest.mark.parametrize("radius", [0, 1, 2])
@pytest.mark.parametrize(("q", "k"), PAIRS)
def test_neighbourhood_is_a_box_around_the_query(q: TokenGrid, k: TokenGrid, radius: int) -> None:
    expected = [
        [
            i is None or j is None or all(abs(a - b) <= radius for a, b in zip(i, j, strict=True))
            for j in token_positions(k)
        ]
        for i in token_positions(q)
    ]
    assert neighbourhood(q, k, radius).tolist() == expected
    if q.ndim == 1:
        assert sliding_window(q, k, radius).tolist() == expected


def test_neighbourhood_with_a_radius_per_axis() -> None:
    grid = TokenGrid((3, 4))
    visible = neighbourhood(grid, grid, (0, 2))
    for (i, a), (j, b) in product(enumerate(grid.positions()), repeat=2):
        assert visible[i, j] == (a[0] == b[0] and abs(a[1] - b[1]) <= 2)


@pytest.mark.parametrize("radius", [-1, (1,), (1, -2), (1, 2, 3)])
def test_a_bad_radius_is_refused(radius: int | tuple[int, ...]) -> None:
    grid = TokenGrid((3, 4))
    with pytest.raises(ValueError, match="window"):
        neighbourhood(grid, grid, radius)


def test_sliding_window_is_one_dimensional() -> None:
    with pytest.raises(ValueError, match="neighbourhood"):
        sliding_window(TokenGrid((3, 4)), TokenGrid((3, 4)), 1)


def test_padding_hides_keys_from_every_head_and_query() -> None:
    key_visible = torch.tensor([[True, False, True], [False, True, True]])
    assert padding(key_visible).shape == (2, 1, 1, 3)
    with pytest.raises(ValueError, match="key_visible"):
        padding(key_visible.float())
    with pytest.raises(ValueError, match="key_visible"):
        padding(key_visible[None])


def test_three_axes_are_batch_query_key_even_if_batch_equals_heads() -> None:
    visible = torch.rand(2, 3, 4) > 0.5
    assert torch.equal(as_batch_head(visible, batch=2, num_heads=2), visible[:, None])
    assert torch.equal(as_batch_head(visible[:1], batch=5, num_heads=2), visible[:1, None])
    four = torch.rand(2, 3, 4, 4) > 0.5
    assert torch.equal(as_batch_head(four, batch=2, num_heads=3), four)


@pytest.mark.parametrize(
    "visible",
    [
        torch.ones(3, 4, dtype=torch.bool),
        torch.ones(3, 4, 4, dtype=torch.bool),
        torch.ones(2, 5, 4, 4, dtype=torch.bool),
        torch.ones(2, 4, 4),
    ],
    ids=["two axes", "another batch", "other heads", "not boolean"],
)
def test_a_mask_of_another_shape_is_refused(visible: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="visible must be"):
        as_batch_head(visible, batch=2, num_heads=3)


def test_intersect_ignores_none() -> None:
    a, b = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    assert intersect(None, None) is None
    assert intersect(a, None, b).tolist() == [True, False, False]


MASKS = [
    None,
    GeometricMask(is_causal=True),
    GeometricMask(window=1),
    GeometricMask(window=0),
    GeometricMask(window=(2, 0)),
    GeometricMask(is_causal=True, window=(0, 1)),
]


@pytest.mark.parametrize("a", MASKS)
@pytest.mark.parametrize("b", MASKS)
def test_masks_by_geometry_intersect_as_their_dense_masks_do(a: GeometricMask | None, b: GeometricMask | None) -> None:
    q, k = TokenGrid((2, 3), 1, origin=(1, 0)), TokenGrid((4, 3), 2)
    both = intersect_geometric(a, b)
    expected = intersect(*(None if mask is None else mask.dense(q, k) for mask in (a, b)))
    assert (both is None) == (expected is None)
    if both is not None and expected is not None:
        assert torch.equal(both.dense(q, k), expected)
        assert both == geometric_mask(is_causal=both.is_causal, window=both.window)


def test_a_mask_by_geometry_is_that_of_causal_and_window() -> None:
    q, k = PAIRS[2]
    found = GeometricMask(True, (1, 0)).dense(q, k)
    assert torch.equal(found, causal(q, k) & neighbourhood(q, k, (1, 0)))
    assert GeometricMask().dense(q, k).all()
    assert geometric_mask(is_causal=False, window=None) is None
