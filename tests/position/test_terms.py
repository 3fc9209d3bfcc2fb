"""The bundle of terms: dense forms, combination, and taking tokens out."""

from __future__ import annotations

import pytest
import torch

from tests.all_terms import HEADS, WIDTH, everything
from tests.oracles._loops import token_positions
from vit_rpe.attention import attend
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import AxisBias, PositionTerms, RelativeVectors, combine, dense_bias, dense_index

Q, K = TokenGrid((2, 3), 1), TokenGrid((3, 2), 2)


def test_axis_bias_is_spread_over_the_other_axes() -> None:
    rows, columns = torch.randn(HEADS, 2, 3), torch.randn(HEADS, 3, 2)
    bias = dense_bias(PositionTerms(axis_bias=(AxisBias(rows, 0), AxisBias(columns, 1)), grids=(Q, K)))
    assert bias is not None
    assert bias.shape == (HEADS, Q.num_tokens, K.num_tokens)
    for i, at_q in enumerate(token_positions(Q)):
        for j, at_k in enumerate(token_positions(K)):
            if at_q is None or at_k is None:
                assert (bias[:, i, j] == 0).all()
            else:
                expected = rows[:, at_q[0], at_k[0]] + columns[:, at_q[1], at_k[1]]
                torch.testing.assert_close(bias[:, i, j], expected)


def test_prefix_bias_has_one_value_per_kind_of_pair() -> None:
    prefix = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    bias = dense_bias(PositionTerms(prefix_bias=prefix, grids=(Q, K)))
    assert bias is not None
    assert (bias[:, :1, 2:] == prefix[:, 0, None, None]).all()
    assert (bias[:, 1:, :2] == prefix[:, 1, None, None]).all()
    assert (bias[:, :1, :2] == prefix[:, 2, None, None]).all()
    assert (bias[:, 1:, 2:] == 0).all()


def test_offset_bias_finds_every_offset() -> None:
    """A table of distinct values, rows over dh = -2 ... 1 and columns over dw = -1 ... 2."""
    table = torch.arange(16.0).reshape(1, 4, 4)
    bias = dense_bias(PositionTerms(offset_bias=(table,), grids=(Q, K)))
    assert bias is not None
    for i, at_q in enumerate(token_positions(Q)):
        for j, at_k in enumerate(token_positions(K)):
            inside = at_q is not None and at_k is not None
            assert bias[0, i, j] == (table[0, at_q[0] - at_k[0] + 2, at_q[1] - at_k[1] + 1] if inside else 0)


def test_parts_need_their_grids() -> None:
    with pytest.raises(ValueError, match="grids"):
        dense_bias(PositionTerms(axis_bias=(AxisBias(torch.zeros(1, 2, 3), 0),)))


def test_all_biases_add_up() -> None:
    parts = PositionTerms(
        bias=torch.randn(HEADS, Q.num_tokens, K.num_tokens),
        axis_bias=(AxisBias(torch.randn(1, 2, 3), 0),),
        offset_bias=(torch.randn(HEADS, 4, 4),),
        prefix_bias=torch.randn(HEADS, 3),
        grids=(Q, K),
    )
    single = [
        PositionTerms(bias=parts.bias),
        PositionTerms(axis_bias=parts.axis_bias, grids=(Q, K)),
        PositionTerms(offset_bias=parts.offset_bias, grids=(Q, K)),
        PositionTerms(prefix_bias=parts.prefix_bias, grids=(Q, K)),
    ]
    total = torch.zeros(())
    for terms in single:
        added = dense_bias(terms)
        assert added is not None
        total = total + added
    torch.testing.assert_close(dense_bias(parts), total)
    joined = single[0]
    for terms in single[1:]:
        joined = combine(joined, terms)
    torch.testing.assert_close(dense_bias(joined), total)
    assert dense_bias(PositionTerms()) is None


def test_axis_index_is_minus_one_at_prefix_tokens() -> None:
    part = RelativeVectors(torch.randn(1, 5, WIDTH), torch.arange(6).reshape(2, 3) % 5, axis=0)
    index = dense_index(PositionTerms(on_query=(part,), grids=(Q, K)), part)
    for i, at_q in enumerate(token_positions(Q)):
        for j, at_k in enumerate(token_positions(K)):
            inside = at_q is not None and at_k is not None
            assert index[i, j] == (part.index[at_q[0], at_k[0]] if inside else -1)


@pytest.mark.parametrize("prefix", [0, 2])
def test_take_equals_hiding_what_was_not_taken(prefix: int) -> None:
    grid = TokenGrid((2, 3), prefix)
    terms = everything(grid)
    q, k, v = torch.randn(3, 3, HEADS, grid.num_tokens, WIDTH)
    keep = torch.stack([torch.randperm(grid.num_tokens)[:5] for _ in range(3)])
    keep[:, 0] = 0  # the key that every query sees
    keep[1] = torch.tensor([0, 5, 3, 1, 2])
    visible = torch.zeros(3, grid.num_tokens, grid.num_tokens, dtype=torch.bool)
    rows = keep[:, None, :, None].expand(3, HEADS, 5, WIDTH)
    for sample in range(3):
        visible[sample, :, keep[sample]] = True
    full = attend(q, k, v, terms, scale=0.3, visible=visible, impl="eager").gather(2, rows)
    fewer = [tensor.gather(2, rows) for tensor in (q, k, v)]
    unique = [len(set(row.tolist())) == 5 for row in keep]
    taken = attend(*fewer, terms.take(keep), scale=0.3)
    torch.testing.assert_close(taken[unique], full[unique])
    assert unique[1]


def test_combine_joins_and_intersects() -> None:
    grid = TokenGrid((2, 3))
    a = everything(grid)._replace(rotate_q=None, rotate_k=None)
    b = everything(grid)._replace(scale=1.0)
    both = combine(a, b)
    assert both.rotate_q is b.rotate_q
    assert both.scale == 0.7
    assert len(both.on_query) == 4
    assert a.visible is not None
    assert b.visible is not None
    assert both.visible is not None
    assert torch.equal(both.visible, a.visible & b.visible)
    assert torch.equal(both.offset_visible, a.offset_visible & b.offset_visible)
    assert both.geometric_mask == a.geometric_mask
    assert combine(PositionTerms(), b) == b


def test_what_excludes_each_other_is_refused() -> None:
    grid = TokenGrid((2, 3))
    a = everything(grid)
    with pytest.raises(ValueError, match="rotary"):
        combine(a, a)
    plain = a._replace(rotate_q=None, rotate_k=None)
    with pytest.raises(ValueError, match="softmax scale"):
        combine(a, plain)
    with pytest.raises(ValueError, match="different grids"):
        combine(a, plain._replace(scale=1.0, grids=(grid, TokenGrid((3, 2)))))
