"""transformer_xl: the shift over a full matrix, what a prefix token gets, and its width rule."""

from __future__ import annotations

import pytest
import torch

from tests.encodings.build import HEAD_DIM, HEADS, build
from vit_rpe.encodings import create_encoding
from vit_rpe.encodings._tables import distinct_offsets
from vit_rpe.position.geometry import TokenGrid


@pytest.mark.parametrize(("num_queries", "num_keys"), [(4, 4), (1, 1), (3, 5), (5, 2)])
def test_shift_over_a_full_matrix(num_queries: int, num_keys: int) -> None:
    """With S[i, o] = 10 i + o over every offset o, out[i, j] = S[i, i - j]: no row borrows from another."""
    offsets, index = distinct_offsets(TokenGrid((num_queries,)), TokenGrid((num_keys,)), 0)
    assert offsets.tolist() == list(range(1 - num_keys, num_queries))
    scores = 10 * torch.arange(num_queries)[:, None] + offsets
    expected = [[10 * i + i - j for j in range(num_keys)] for i in range(num_queries)]
    assert scores.gather(1, index).tolist() == expected


def test_shift_of_a_window_and_of_pooled_keys() -> None:
    q = TokenGrid((2,), origin=(5,), extent=(9,))
    k = TokenGrid((3,), stride=(2,), extent=(9,))
    offsets, index = distinct_offsets(q, k, 0)
    assert offsets[index].tolist() == [[5, 3, 1], [6, 4, 2]]
    offsets, index = distinct_offsets(q, k, 0, limit=4)
    assert offsets[index].tolist() == [[4, 3, 1], [4, 4, 2]]
    assert offsets.tolist() == [1, 2, 3, 4]


def test_table_has_one_row_per_offset_and_axis() -> None:
    encoding = build("transformer_xl", TokenGrid((2, 3)))
    terms = encoding(TokenGrid((4, 5)), TokenGrid((4, 5)))
    assert [tuple(part.table.shape) for part in terms.on_query] == [(HEADS, 7, HEAD_DIM), (HEADS, 9, HEAD_DIM)]


def test_only_the_matrix_is_decayed() -> None:
    assert build("transformer_xl", TokenGrid((5,))).no_weight_decay() == {"u", "v"}


def test_width_must_split_over_the_axes() -> None:
    with pytest.raises(ValueError, match=r"divisible by 6, got 2 \* 4 = 8"):
        create_encoding("transformer_xl", 2, 4, TokenGrid((2, 3, 4)))
