"""Numbers computed by hand from the published definitions."""

from __future__ import annotations

import math

import pytest
import torch

from tests.encodings.build import HEAD_DIM, HEADS, build, inputs, native_grid, output
from vit_rpe.encodings import create_encoding
from vit_rpe.encodings._rotary import rotation
from vit_rpe.encodings._starts import neighbours
from vit_rpe.encodings.alibi import alibi_slopes
from vit_rpe.encodings.cpb import log_coordinate
from vit_rpe.encodings.kerple import held
from vit_rpe.encodings.lookhere import layer_factor
from vit_rpe.encodings.rope_normalized import normalized_coordinates
from vit_rpe.encodings.t5 import t5_bucket
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import dense_bias, dense_visible


@pytest.mark.parametrize(
    ("offset", "bucket"),
    [
        (0, 0), (1, 17), (-1, 1), (7, 23), (-7, 7), (8, 24), (-8, 8), (15, 25),
        (16, 26), (-16, 10), (64, 30), (127, 31), (1000, 31), (-128, 15),
    ],
)  # fmt: skip
def test_t5_buckets(offset: int, bucket: int) -> None:
    """Key minus query; 32 buckets up to 128, both directions."""
    assert t5_bucket(offset, 32, 128, True) == bucket


def test_t5_causal_puts_the_future_in_bucket_0_and_hides_nothing() -> None:
    grid = TokenGrid((5,))
    encoding = create_encoding({"name": "t5", "bidirectional": False, "num_buckets": 8}, 1, 4, grid)
    encoding.table_0.data = torch.arange(8.0)[None]
    terms = encoding(grid, grid)
    assert terms.visible is None
    expected = [[max(i - j, 0) if i - j < 4 else 4 for j in range(5)] for i in range(5)]
    assert dense_bias(terms)[0].tolist() == expected


def test_swinv2_coordinates_of_an_axis_of_8() -> None:
    expected = [0, 0.3665, 0.5721, 0.7156, 0.8260, 0.9157, 0.9913, 1.0566]
    torch.testing.assert_close(
        log_coordinate(torch.arange(8.0), "swinv2", 8), torch.tensor(expected), atol=5e-5, rtol=0
    )
    torch.testing.assert_close(
        log_coordinate(-torch.arange(8.0), "swinv2", 8), -torch.tensor(expected), atol=5e-5, rtol=0
    )
    assert (log_coordinate(torch.arange(-3.0, 4.0), "swinv2", 1) == 0).all()


def test_cpb_keeps_the_native_size_in_the_formula() -> None:
    """On a larger grid the bias of an offset is the one it had on the native grid."""
    encoding = build("cpb", TokenGrid((4, 5)))
    small, large = TokenGrid((2, 3)), TokenGrid((2, 3), origin=(5, 6), extent=(9, 10))
    torch.testing.assert_close(dense_bias(encoding(small, small)), dense_bias(encoding(large, large)))


@pytest.mark.parametrize(
    ("num_heads", "slopes"),
    [
        (8, [2.0**-n for n in range(1, 9)]),
        (12, [2.0**-n for n in range(1, 9)] + [0.7071, 0.3536, 0.1768, 0.0884]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (3, [0.0625, 0.00390625, 0.25]),
        (1, [2.0**-8]),
    ],
)
def test_alibi_slopes(num_heads: int, slopes: list[float]) -> None:
    assert alibi_slopes(num_heads) == pytest.approx(slopes, abs=5e-5)


def test_kerple_holds_its_parameters_in_range_with_a_live_gradient() -> None:
    values = torch.tensor([-1.0, 0.005, 0.5, 3.0], requires_grad=True)
    torch.testing.assert_close(held(values), torch.tensor([0.01, 0.01, 0.5, 3.0]))
    bounded = held(values, 2.0)
    torch.testing.assert_close(bounded, torch.tensor([0.01, 0.01, 0.5, 2.0]))
    bounded.sum().backward()
    assert values.grad.tolist() == [1, 1, 1, 1]
    encoding = create_encoding("kerple", 2, 4, TokenGrid((2, 3)))
    for parameter in encoding.parameters():
        parameter.data.fill_(-5.0)
    bias = dense_bias(encoding(encoding.grid, encoding.grid))
    assert bias[0, 0, 5].item() == pytest.approx(-0.01 * math.log(1 + 0.01 * math.sqrt(5)))


def test_fire_is_relative_to_how_far_the_query_could_look() -> None:
    """Beyond L the farthest place of a query always has ratio 1, at any size."""
    encoding = build("fire", TokenGrid((4,)))
    corners = []
    for size in (6, 9):
        bias = dense_bias(encoding(TokenGrid((size,)), TokenGrid((size,))))
        corners += [bias[:, 0, -1], bias[:, -1, 0]]
    for corner in corners[1:]:
        torch.testing.assert_close(corner, corners[0], atol=1e-5, rtol=1e-5)


def compass(encoding, head: int, size: int = 5) -> list[str]:
    """What the token in the middle sees in one head, a row of the picture per string."""
    grid = TokenGrid((size, size))
    seen = dense_visible(encoding(grid, grid))[head, (size * size) // 2].reshape(size, size)
    return ["".join("#" if value else "." for value in row) for row in seen.tolist()]


@pytest.mark.parametrize(
    ("fov", "head", "picture"),
    [
        (180, 0, ["#####", "#####", "#####", ".....", "....."]),
        (180, 1, [".....", ".....", "#####", "#####", "#####"]),
        (180, 2, ["###..", "###..", "###..", "###..", "###.."]),
        (180, 7, ["..###", "..###", "..###", "..###", "..###"]),
        (90, 0, ["###..", "###..", "###..", ".....", "....."]),
        (90, 1, ["..###", "..###", "..###", ".....", "....."]),
        (90, 2, [".....", ".....", "###..", "###..", "###.."]),
        (90, 4, ["#####", ".###.", "..#..", ".....", "....."]),
        (90, 5, [".....", ".....", "..#..", ".###.", "#####"]),
        (90, 6, ["#....", "##...", "###..", "##...", "#...."]),
        (45, 0, ["###..", ".##..", "..#..", ".....", "....."]),
        (45, 3, ["....#", "...##", "..###", ".....", "....."]),
        (45, 7, [".....", ".....", "..###", "...##", "....#"]),
        (45, 8, ["#####"] * 5),
    ],
)
def test_lookhere_fields_of_view(fov: int, head: int, picture: list[str]) -> None:
    encoding = create_encoding({"name": "lookhere", "fov": fov}, 12, HEAD_DIM, TokenGrid((5, 5)))
    assert compass(encoding, head) == picture


@pytest.mark.parametrize(
    ("fov", "num_heads", "slopes"),
    [
        (180, 12, [1 / 2] * 4 + [1 / 4] * 4 + [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        (90, 12, [1 / 2] * 8 + [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        (45, 6, [1 / 2] * 4 + [1 / 4, 1 / 16]),
        (90, 1, [1 / 2]),
        (180, 16, [1 / 2] * 4 + [1 / 4] * 4 + [1 / 2] * 3 + [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 4]),
    ],
)
def test_lookhere_slopes(fov: int, num_heads: int, slopes: list[float]) -> None:
    encoding = create_encoding({"name": "lookhere", "fov": fov}, num_heads, HEAD_DIM, TokenGrid((2, 3)))
    bias = dense_bias(encoding(TokenGrid((1, 2)), TokenGrid((1, 2))))
    torch.testing.assert_close(bias[:, 0, 1], -torch.tensor(slopes))


def test_lookhere_layers_fall_from_one_and_a_half_to_a_half() -> None:
    assert [layer_factor(index, 5) for index in range(5)] == [1.5, 1.25, 1.0, 0.75, 0.5]
    assert (layer_factor(0, 1), layer_factor(None, None)) == (1.5, 1.0)
    grid = TokenGrid((1, 2))
    layers = [create_encoding("lookhere", 1, 4, grid, depth_index=i, depth=3)(grid, grid) for i in range(3)]
    assert [dense_bias(terms)[0, 0, 1].item() for terms in layers] == [-0.75, -0.5, -0.25]


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_rope_mixed_starts_with_directions_at_right_angles(axes: int) -> None:
    """The n directions of a head have length 1 and right angles; speeds fall from 1 by powers of the base."""
    encoding = create_encoding("rope_mixed", 3, 24, native_grid(axes))
    share = 12 // axes
    blocks = encoding.frequencies.reshape(axes, 3, axes, share)  # axis, head, direction, speed
    speeds = 10.0 ** (-torch.arange(share) / share)
    for speed in range(share):
        basis = blocks[..., speed].movedim(1, 0) / speeds[speed]
        torch.testing.assert_close(basis @ basis.mT, torch.eye(axes).expand(3, -1, -1), atol=1e-5, rtol=1e-5)


def test_mixed_rotation_by_hand() -> None:
    frequencies = torch.tensor([[[0.1, 0.2]], [[1.0, 2.0]]], dtype=torch.float64)
    grid = TokenGrid((1, 2), 1, origin=(3, 4))
    coordinates = [grid.axis_positions(axis).double() for axis in range(2)]
    cos, sin = rotation(frequencies, coordinates, grid.num_prefix)
    angles = torch.tensor([[[0, 0], [4.3, 8.6], [5.3, 10.6]]], dtype=torch.float64)
    torch.testing.assert_close(cos, angles.cos())
    torch.testing.assert_close(sin, angles.sin())


def test_normalized_coordinates_by_hand() -> None:
    grid = TokenGrid((1, 2), origin=(1, 2), extent=(2, 4))
    for normalize, expected in (
        ("separate", [[0.5, 0.25], [0.5, 0.75]]),
        ("min", [[0.5, 1.5], [0.5, 2.5]]),
        ("max", [[-0.25, 0.25], [-0.25, 0.75]]),
    ):
        assert normalized_coordinates(grid, grid.lattice, normalize).tolist() == expected


@pytest.mark.parametrize("options", [{"shift": 0.3}, {"jitter": 1.5}, {"rescale": 1.5}])
def test_rope_normalized_draws_in_training_only(options: dict) -> None:
    """A new draw each call, the same for queries and keys, within its bounds; nothing in evaluation."""
    grid = TokenGrid((2, 3))
    encoding = build("rope_normalized", grid, options, dtype=torch.float32)
    plain = build("rope_normalized", grid, dtype=torch.float32)
    tensors = inputs(grid, grid, dtype=torch.float32)
    torch.testing.assert_close(output(encoding, grid, grid, tensors), output(plain, grid, grid, tensors))
    encoding.train()
    first, second = encoding(grid, grid), encoding(grid, TokenGrid((2, 3), extent=(2, 3)))
    assert not torch.equal(first.rotate_q[0], second.rotate_q[0])
    torch.testing.assert_close(second.rotate_q, second.rotate_k)
    draws = [encoding.draw_change() for _ in range(200)]
    shifts, stretches = (torch.stack([change[field] for change in draws]) for field in (0, 1))
    if "shift" in options:
        assert 0.25 < shifts.abs().max() <= 0.3
        assert (stretches == 1).all()
        return
    assert (shifts == 0).all()
    assert 1.4 < stretches.max() <= 1.5
    assert 1 / 1.5 <= stretches.min() < 0.72
    assert (stretches[:, 0] == stretches[:, 1]).all() == ("rescale" in options)


def test_cpb_adds_nothing_after_zero_where_it_can() -> None:
    with_prefix = native_grid(2, prefix=1)
    with pytest.raises(ValueError, match="prefix='learned'"):
        build("cpb", with_prefix).zero_()
    encoding = build("cpb", with_prefix, {"prefix": "learned"})
    encoding.zero_()
    assert (dense_bias(encoding(with_prefix, with_prefix)) == 8).all()


def test_alibi_refuses_zero_unless_learned() -> None:
    with pytest.raises(ValueError, match="learned=True"):
        build("alibi", native_grid(2)).zero_()


def test_impulse_heads_look_at_the_neighbours() -> None:
    """Each head's best key is the published one, key minus query; both tables add the same."""
    grid = TokenGrid((5, 6))
    spec = {"init": "impulse", "strength": 0.7}
    joint, summed = (create_encoding({"name": name, **spec}, 10, HEAD_DIM, grid) for name in ("bias", "bias_axial"))
    bias = dense_bias(joint(grid, grid))
    torch.testing.assert_close(bias, dense_bias(summed(grid, grid)))
    looks = [(0, 0), (-1, 0), (0, 1), (0, -1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1), (0, 0)]
    query = 2 * 6 + 3
    for head, (down, right) in enumerate(looks):
        assert bias[head, query].argmax() == (2 + down) * 6 + 3 + right
        assert bias[head, query].max() == 0
    torch.testing.assert_close(bias[0, query, query + 2], torch.tensor(-0.7 * 4))


@pytest.mark.parametrize("axes", [1, 3])
def test_impulse_on_other_axes_starts_with_the_token_itself(axes: int) -> None:
    known = neighbours(axes)
    assert known[0] == (0,) * axes
    assert len(set(known)) == 3**axes
    squares = [sum(step * step for step in place) for place in known]
    assert squares == sorted(squares)


def test_gaussian_heads_look_at_a_grid_around_the_query() -> None:
    grid = TokenGrid((5, 6))
    encoding = create_encoding({"name": "gaussian", "strength": 0.5}, 11, HEAD_DIM, grid)
    bias = dense_bias(encoding(grid, grid))
    query = 2 * 6 + 3
    for head in range(9):
        down, right = head % 3 - 1, head // 3 - 1
        assert bias[head, query].argmax() == (2 + down) * 6 + 3 + right
    assert not encoding.v[9:].any()
    even = create_encoding("gaussian", 4, HEAD_DIM, grid)
    assert even.v[:, 1:].tolist() == [[1, 1], [-1, 1], [1, -1], [-1, -1]]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"name": "decomposed", "init": "impulse"}, "cannot have init='impulse'"),
        ({"name": "bias", "strength": 2.0}, "is that of init='impulse'"),
        ({"name": "bias", "init": "impulse", "symmetric": True}, "one entry for both ways"),
        ({"name": "fourier", "terms": 1, "base": 7.0}, "has no effect"),
    ],
)
def test_starts_without_effect_are_refused(spec: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        create_encoding(spec, HEADS, HEAD_DIM, TokenGrid((2, 3)))


@pytest.mark.parametrize("name", ["bias", "bias_axial"])
def test_a_symmetric_table_is_resampled_as_its_whole(name: str) -> None:
    """Resampling half of the offsets equals resampling both mirrored halves."""
    half = create_encoding({"name": name, "symmetric": True}, HEADS, HEAD_DIM, TokenGrid((4, 5)))
    whole = create_encoding(name, HEADS, HEAD_DIM, TokenGrid((4, 5)))
    with torch.no_grad():
        for one, other in zip(half.parameters(), whole.parameters(), strict=True):
            one.normal_()
            mirrored = one
            for dim in range(1, one.ndim):
                mirrored = torch.cat([mirrored.flip(dim), mirrored.narrow(dim, 1, mirrored.shape[dim] - 1)], dim)
            other.copy_(mirrored)
    grid = TokenGrid((7, 3))
    for resized in (half.resized(grid), whole.resized(grid)):
        assert resized.grid_of(resized.state_dict()) == grid.size
    expected = dense_bias(whole.resized(grid)(grid, grid))
    torch.testing.assert_close(dense_bias(half.resized(grid)(grid, grid)), expected)


@pytest.mark.parametrize(("size", "causal"), [((4, 3), False), ((7,), True), ((2, 3, 2), False)])
def test_fire_is_a_table_over_offsets_where_its_threshold_is_the_larger(size: tuple[int, ...], causal: bool) -> None:
    grid = TokenGrid(size, num_prefix=1)
    encoding = create_encoding({"name": "fire", "causal": causal}, 2, 8, grid, dtype=torch.float64)
    assert not encoding.has_entry_per_pair(grid, grid)
    larger = TokenGrid(tuple(length + 2 for length in size), num_prefix=1)
    assert encoding.has_entry_per_pair(larger, larger)
    encoding.L.data += 0.5  # no ties, where either side may have the gradient
    weight = torch.randn(2, grid.num_tokens, grid.num_tokens, dtype=torch.float64)
    found = []
    for by_offset in (True, False):
        if not by_offset:
            encoding.has_entry_per_pair = lambda q, k: True
        terms = encoding(grid, grid)
        assert (terms.bias is None) == by_offset
        bias = dense_bias(terms)
        found.append((bias, *torch.autograd.grad((bias * weight).sum(), list(encoding.parameters()))))
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other)
