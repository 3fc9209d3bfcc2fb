"""Grids and offsets: row-major, query minus key, height before width."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from vit_rpe.position.geometry import TokenGrid, axis_offsets, check_same_axes, expand_axis, offsets


def test_offsets_are_query_minus_key_row_major() -> None:
    """Height and width must not change places: 100 dh + dw on a 2 x 3 grid."""
    grid = TokenGrid((2, 3))
    delta = offsets(grid, grid)
    value = 100 * delta[..., 0] + delta[..., 1]
    for i, j in product(range(6), range(6)):
        (row_i, column_i), (row_j, column_j) = divmod(i, 3), divmod(j, 3)
        assert value[i, j] == 100 * (row_i - row_j) + (column_i - column_j)
    assert (value[0, 5], value[5, 0], value[0, 3]) == (-102, 102, -100)


def test_dense_index_of_a_2_by_3_grid() -> None:
    """One index per offset with row stride 2W - 1, as published tables are laid out."""
    grid = TokenGrid((2, 3))
    delta = offsets(grid, grid)
    index = (delta[..., 0] + 1) * 5 + delta[..., 1] + 2
    assert index.tolist() == [
        [7, 6, 5, 2, 1, 0],
        [8, 7, 6, 3, 2, 1],
        [9, 8, 7, 4, 3, 2],
        [12, 11, 10, 7, 6, 5],
        [13, 12, 11, 8, 7, 6],
        [14, 13, 12, 9, 8, 7],
    ]


@pytest.mark.parametrize(
    ("q", "k"),
    [
        (TokenGrid((4,)), TokenGrid((2,), origin=(3,))),
        (TokenGrid((2, 3), 1, origin=(1, 0)), TokenGrid((3, 2), 4, stride=(2, 3))),
        (TokenGrid((2, 1, 3)), TokenGrid((1, 4, 2), origin=(0, 5, 1), stride=(1, 2, 2))),
    ],
)
def test_positions_and_offsets_by_hand(q: TokenGrid, k: TokenGrid) -> None:
    def by_hand(grid: TokenGrid) -> list[list[int]]:
        start, step = grid.origin, grid.stride or (1,) * grid.ndim
        cells = product(*(range(size) for size in grid.size))
        return [[o + s * i for o, s, i in zip(start, step, cell, strict=True)] for cell in cells]

    assert q.positions().tolist() == by_hand(q)
    assert k.positions().tolist() == by_hand(k)
    expected = [[[a - b for a, b in zip(i, j, strict=True)] for j in by_hand(k)] for i in by_hand(q)]
    assert offsets(q, k).tolist() == expected
    assert offsets(q, k).dtype == torch.int64
    for axis in range(q.ndim):
        pairs = expand_axis(axis_offsets(q, k, axis), axis, q, k).reshape(q.num_patches, k.num_patches)
        torch.testing.assert_close(pairs, offsets(q, k)[..., axis])


def test_counts_and_defaults() -> None:
    grid = TokenGrid((2, 3), num_prefix=4)
    assert (grid.ndim, grid.num_patches, grid.num_tokens) == (2, 6, 10)
    assert (grid.origin, grid.steps, grid.lattice) == ((0, 0), (1, 1), (2, 3))
    assert TokenGrid((2, 3), extent=(5, 7)).lattice == (5, 7)
    assert TokenGrid((2, 3)) == TokenGrid((2, 3))
    assert TokenGrid((2, 3)) != TokenGrid((3, 2))


def test_device_is_explicit() -> None:
    grid = TokenGrid((2, 3))
    assert offsets(grid, grid, "meta").device.type == "meta"
    assert grid.positions("meta").shape == (6, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": ()}, "non-empty"),
        ({"size": 5}, "tuple"),
        ({"size": (2, 0)}, "at least one token"),
        ({"size": (2, 3), "num_prefix": -1}, "num_prefix"),
        ({"size": (2, 3), "origin": (1,)}, "origin"),
        ({"size": (2, 3), "stride": (1, 2, 3)}, "stride"),
        ({"size": (2, 3), "extent": (4,)}, "extent"),
    ],
)
def test_a_bad_grid_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenGrid(**arguments)


def test_grids_of_different_axes_do_not_meet() -> None:
    with pytest.raises(ValueError, match="number of axes"):
        check_same_axes(TokenGrid((2, 3)), TokenGrid((6,)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": (1, 0)}, "stride must be at least 1"),
        ({"stride": (1, -2)}, "stride must be at least 1"),
        ({"extent": (2, 2)}, "extent"),
        ({"origin": (0, 1), "extent": (2, 3)}, r"which need \(2, 4\)"),
        ({"stride": (2, 2), "extent": (3, 4)}, r"which need \(3, 5\)"),
        ({"size": (2, 3.0)}, "made of integers, got 3.0"),
        ({"size": (2, True)}, "made of integers, got True"),
        ({"size": (2, "3")}, "made of integers, got '3'"),
        ({"num_prefix": 1.0}, "made of integers"),
        ({"num_prefix": -1}, "num_prefix"),
        ({"origin": (0.5, 1)}, "made of integers"),
        ({"origin": [0, 1]}, "in a tuple"),
        ({"origin": (1,)}, "one entry per axis"),
    ],
)
def test_what_is_no_grid_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenGrid(**{"size": (2, 3), **options})


def test_the_lattice_reaches_to_the_last_token() -> None:
    assert TokenGrid((2, 3)).lattice == (2, 3)
    assert TokenGrid((2, 3), origin=(4, 0), stride=(1, 2)).lattice == (6, 5)
    assert TokenGrid((2, 3), origin=(4, 0), stride=(1, 2), extent=(6, 6)).lattice == (6, 6)


def test_origin_was_called_offset() -> None:
    with pytest.warns(DeprecationWarning, match="now origin="):
        grid = TokenGrid((2, 3), 1, offset=(4, 5))
    assert grid == TokenGrid((2, 3), 1, origin=(4, 5))
    with pytest.warns(DeprecationWarning, match=r"TokenGrid\.origin"):
        assert grid.offset == (4, 5)
    with pytest.warns(DeprecationWarning, match="origin"), pytest.raises(ValueError, match="both given"):
        TokenGrid((2,), origin=(1,), offset=(1,))
    assert TokenGrid((2, 3)) == TokenGrid((2, 3), origin=(0, 0))
    assert replace(grid, size=(2, 4)).origin == (4, 5)
