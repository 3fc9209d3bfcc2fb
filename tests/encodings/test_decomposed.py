"""decomposed: MViTv2's rows for pooled grids, zero start, and resampling."""

from __future__ import annotations

import pytest
import torch

from tests.encodings.build import HEAD_DIM, build
from vit_rpe.encodings import create_encoding
from vit_rpe.encodings.decomposed import pooled_rows
from vit_rpe.position.geometry import TokenGrid


@pytest.mark.parametrize(
    ("q_stride", "k_stride", "zero"), [(1, 1, 7), (1, 2, 6), (1, 4, 4), (2, 1, 7), (2, 2, 3), (2, 4, 2)]
)
def test_rows_of_pooled_grids(q_stride: int, k_stride: int, zero: int) -> None:
    """Coordinates times the ratio of sizes, and distance 0 at (k_size - 1) * k_ratio, on a lattice of 8."""
    q_size, k_size = 8 // q_stride, 8 // k_stride
    native = max(q_size, k_size)
    q = TokenGrid((q_size,), stride=(q_stride,))
    k = TokenGrid((k_size,), stride=(k_stride,))
    q_ratio, k_ratio = max(k_size // q_size, 1), max(q_size // k_size, 1)
    assert zero == (k_size - 1) * k_ratio
    expected = [[i * q_ratio - j * k_ratio + zero for j in range(k_size)] for i in range(q_size)]
    assert pooled_rows(q, k, 0, native).tolist() == expected


def test_keys_pooled_with_a_rest() -> None:
    """7 tokens pooled by 2 into 4: the last key lies at 6, and every row is inside the table of 13."""
    rows = pooled_rows(TokenGrid((7,)), TokenGrid((4,), stride=(2,)), 0, 7)
    assert (rows[0, 3].item(), rows[0, 0].item(), rows[6, 0].item()) == (0, 6, 12)


def test_window_of_queries_and_keys_has_the_rows_of_the_whole() -> None:
    q, k = TokenGrid((8,)), TokenGrid((4,), stride=(2,))
    part_q, part_k = TokenGrid((3,), origin=(4,), extent=(8,)), TokenGrid((2,), stride=(2,), origin=(4,), extent=(8,))
    whole = pooled_rows(q, k, 0, 8)
    torch.testing.assert_close(pooled_rows(part_q, part_k, 0, 8), whole[4:7, 2:])


def test_starts_from_nothing() -> None:
    encoding = create_encoding("decomposed", 2, 4, TokenGrid((2, 3)))
    assert all(not parameter.any() for parameter in encoding.parameters())
    drawn = create_encoding({"name": "decomposed", "init_std": 0.5}, 2, 4, TokenGrid((2, 3)))
    assert all(parameter.all() for parameter in drawn.parameters())


def test_resampled_for_another_native_grid() -> None:
    encoding = build("decomposed", TokenGrid((3, 4)))
    larger = encoding.resized(TokenGrid((5, 2)))
    assert (tuple(larger.table_0.shape), tuple(larger.table_1.shape)) == ((9, HEAD_DIM), (3, HEAD_DIM))
    torch.testing.assert_close(larger.table_0[4], encoding.table_0[2], rtol=0, atol=0)
    torch.testing.assert_close(larger.table_1[1], encoding.table_1[3], rtol=0, atol=0)
