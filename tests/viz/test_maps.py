"""Rollout, distance, values by offset and frequencies against loops."""

from __future__ import annotations

import math

import pytest
import torch

import vit_rpe.viz
from tests.viz.build import images, vision_model
from vit_rpe.encodings import create_encoding
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import dense_bias
from vit_rpe.viz import by_offset, mean_distance, picture_range, record, rollout, rotation_frequencies


def test_rollout() -> None:
    maps = [torch.rand(2, 3, 5, 5).softmax(-1) for _ in range(4)]
    joint = rollout(iter(maps), residual=0.3)
    expected = torch.eye(5)
    for weights in maps:
        expected = (0.7 * weights[1].mean(0) + 0.3 * torch.eye(5)) @ expected
    torch.testing.assert_close(joint[1], expected)
    torch.testing.assert_close(joint.sum(-1), torch.ones(2, 5))


def test_rollout_of_a_model_and_of_blind_queries() -> None:
    model = vision_model("lookhere")
    with torch.no_grad(), record(model) as seen:
        model(images())
    joint = rollout(seen.attention(layer) for layer in range(len(seen)))
    torch.testing.assert_close(joint.sum(-1), torch.ones(2, 20))
    blind = torch.rand(1, 2, 3, 3).softmax(-1)
    blind[:, :, 1] = 0
    torch.testing.assert_close(rollout([blind]).sum(-1), torch.ones(1, 3))
    with pytest.raises(ValueError, match="same tokens"):
        rollout([torch.rand(1, 2, 3, 4)])
    with pytest.raises(ValueError, match="at least one"):
        rollout([])


def test_mean_distance() -> None:
    grid = TokenGrid((2, 3), num_prefix=2)
    weights = torch.randn(2, 3, 8, 8).softmax(-1)
    found = mean_distance(weights, grid, grid)
    places = [(row, column) for row in range(2) for column in range(3)]
    for image in range(2):
        for head in range(3):
            total = 0.0
            for i, (row, column) in enumerate(places):
                line = weights[image, head, 2 + i, 2:].tolist()
                far = [math.hypot(row - r, column - c) for r, c in places]
                total += sum(w * d for w, d in zip(line, far, strict=True)) / sum(line)
            assert float(found[image, head]) == pytest.approx(total / 6, rel=1e-5)


def test_by_offset_is_key_minus_query() -> None:
    grid = TokenGrid((2, 3), num_prefix=1)
    places = grid.positions().tolist()
    values = torch.full((1, 7, 7), 999.0)
    for i, (row, column) in enumerate(places):
        for j, (r, c) in enumerate(places):
            values[0, 1 + i, 1 + j] = 100 * (r - row) + (c - column)
    picture = by_offset(values, grid, grid)
    assert picture_range(grid, grid) == ((-1, -2), (3, 5))
    expected = torch.tensor([[100.0 * dh + dw for dw in range(-2, 3)] for dh in range(-1, 2)])
    torch.testing.assert_close(picture[0], expected)


def test_by_offset_of_a_table_is_the_table_turned_round() -> None:
    grid = TokenGrid((3, 4), num_prefix=1)
    encoding = create_encoding("bias", 2, 8, grid)
    with torch.no_grad():
        encoding.table.normal_()
    bias = dense_bias(encoding(grid, grid)).detach()
    torch.testing.assert_close(by_offset(bias, grid, grid), encoding.table.detach().flip(1, 2))


def test_hidden_pairs_do_not_count() -> None:
    grid = TokenGrid((4,))
    values = torch.arange(16.0).reshape(1, 4, 4)
    values[0].masked_fill_(torch.ones(4, 4, dtype=torch.bool).triu(1), float("-inf"))
    picture = by_offset(values, grid, grid)[0]
    assert picture[4:].isnan().all()
    torch.testing.assert_close(picture[:4], torch.tensor([12.0, (8 + 13) / 2, (4 + 9 + 14) / 3, (0 + 5 + 10 + 15) / 4]))


def test_frequencies_of_axial_rope() -> None:
    grid = TokenGrid((3, 5), num_prefix=2)
    encoding = create_encoding({"name": "rope", "base": 50.0}, 2, 12, grid)
    frequencies = rotation_frequencies(encoding(grid, grid).rotate_q, grid)
    rows = [50.0 ** (-t / 3) for t in range(3)]
    expected = torch.tensor([rows + [0.0] * 3, [0.0] * 3 + rows])
    torch.testing.assert_close(frequencies[0], expected, rtol=1e-5, atol=1e-6)


def test_frequencies_along_an_axis_of_one_token() -> None:
    grid = TokenGrid((1, 4))
    encoding = create_encoding("rope", 2, 8, grid)
    frequencies = rotation_frequencies(encoding(grid, grid).rotate_q, grid)
    assert bool((frequencies[0, 0] == 0).all())
    assert bool((frequencies[0, 1, 2:] > 0).all())


def test_frequencies_of_a_sequence() -> None:
    grid = TokenGrid((5,), num_prefix=1)
    encoding = create_encoding({"name": "rope", "base": 50.0}, 2, 12, grid)
    found = rotation_frequencies(encoding(grid, grid).rotate_q, grid)
    torch.testing.assert_close(found[0, 0], torch.tensor([50.0 ** (-t / 6) for t in range(6)]))


def test_offset_range_is_the_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="picture_range"):
        old = vit_rpe.viz.offset_range
    assert old is picture_range
    window = TokenGrid((2, 1), origin=(3, 0), extent=(5, 4))
    assert picture_range(window, TokenGrid((5, 4))) == ((-4, 0), (6, 4))


def test_attention_of_another_shape_is_refused() -> None:
    grid = TokenGrid((2, 3))
    with pytest.raises(ValueError, match=r"rollout needs values \(B, H, N, N\), got the shape \(2, 6, 6\)"):
        rollout([torch.rand(2, 6, 6)])
    with pytest.raises(ValueError, match=r"by_offset needs values \(H, Nq, Nk\), got the shape \(1, 2, 6, 6\)"):
        by_offset(torch.rand(1, 2, 6, 6), grid, grid)
    with pytest.raises(ValueError, match=r"mean_distance needs values .* with Nq = 6 and Nk = 6, got .*7, 7"):
        mean_distance(torch.rand(1, 2, 7, 7), grid, grid)
