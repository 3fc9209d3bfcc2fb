"""Grids other than the native one: windows, small, large, single tokens; on 1, 2 and 3 axes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.encodings.build import (
    HEAD_DIM,
    HEADS,
    SCALE,
    build,
    inputs,
    learned,
    names_and_axes,
    native_grid,
    output,
    terms,
    variants,
)
from tests.oracles import ORACLES
from vit_rpe.attention import attend, position_logits
from vit_rpe.encodings import create_encoding, list_encodings
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import PositionTerms, dense_bias

LATTICE = {1: (7,), 2: (4, 5), 3: (2, 3, 4)}
WINDOWS = {1: ((3,), (2,)), 2: ((1, 2), (2, 3)), 3: ((0, 1, 1), (2, 1, 2))}
every = pytest.mark.parametrize(("name", "axes"), names_and_axes())


def rows_of(window: TokenGrid, lattice: tuple[int, ...]) -> torch.Tensor:
    """Numbers of a window's tokens in the full sequence without prefix."""
    rows = torch.zeros(window.num_patches, dtype=torch.long)
    for axis, length in enumerate(lattice):
        rows = rows * length + window.positions()[:, axis]
    return rows


@pytest.mark.parametrize("prefix", [0, 1, 4])
@every
def test_a_window_of_queries_equals_the_same_rows(name: str, axes: int, prefix: int) -> None:
    full = TokenGrid(LATTICE[axes], prefix)
    offset, size = WINDOWS[axes]
    encoding = build(name, native_grid(axes, prefix))
    q, k, v = inputs(full, full)
    everything = output(encoding, full, full, (q, k, v))
    for own_prefix in {0, prefix}:
        window = TokenGrid(size, own_prefix, origin=offset, extent=full.size)
        rows = torch.cat([torch.arange(own_prefix), rows_of(window, full.size) + prefix])
        part = output(encoding, window, full, (q[:, :, rows], k, v))
        torch.testing.assert_close(part, everything[:, :, rows])


@every
def test_moving_both_grids_changes_nothing(name: str, axes: int) -> None:
    """Only the offset between query and key counts."""
    if not getattr(ORACLES[name], "OFFSET_IS_ALL", True):
        return
    here = TokenGrid(WINDOWS[axes][1], extent=LATTICE[axes])
    there = replace(here, origin=WINDOWS[axes][0])
    encoding = build(name, native_grid(axes))
    tensors = inputs(here, here)
    torch.testing.assert_close(
        output(encoding, there, there, tensors), output(encoding, here, here, tensors), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("which", ["native", "other"])
@every
def test_axes_of_one_token_are_finite(name: str, axes: int, which: str, prefix: int) -> None:
    """A single token, 1 x N and N x 1, as native grid or met by another one."""
    sizes = {(1,) * axes, (1,) * (axes - 1) + (3,), (3,) + (1,) * (axes - 1)}
    for size in sizes:
        grid = TokenGrid(size, prefix)
        encoding = build(name, grid if which == "native" else native_grid(axes, prefix))
        for seen in (grid, native_grid(axes, prefix)):
            tensors = inputs(seen, seen)
            result = output(encoding, seen, seen, tensors)
            assert result.isfinite().all()
            grads = torch.autograd.grad(result.sum(), [*tensors, *learned(encoding)], allow_unused=True)
            assert all(grad is None or grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("impl", ["eager", "auto"])
@every
def test_a_fully_hidden_row_gives_zeros(name: str, axes: int, impl: str) -> None:
    grid = native_grid(axes, prefix=1)
    encoding = build(name, grid)
    tensors = inputs(grid, grid)
    visible = torch.rand(2, grid.num_tokens, grid.num_tokens) > 0.3
    visible[:, :, 0] = True
    visible[1, 2] = False
    result = output(encoding, grid, grid, tensors, visible=visible, impl=impl)
    assert (result[1, :, 2] == 0).all()
    grads = torch.autograd.grad(result.square().sum(), [*tensors, *learned(encoding)], allow_unused=True)
    assert all(grad is None or grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("prefix", [0, 1])
@every
def test_dropped_tokens_keep_their_offsets(name: str, axes: int, prefix: int) -> None:
    """Taking tokens out equals hiding their keys and reading the rows of those that stay."""
    grid = native_grid(axes, prefix)
    encoding = build(name, grid)
    q, k, v = inputs(grid, grid)
    keep = torch.stack([torch.randperm(grid.num_tokens)[:4] for _ in range(2)])
    hidden = torch.ones(2, grid.num_tokens, grid.num_tokens, dtype=torch.bool)
    for sample, kept in enumerate(keep):
        hidden[sample, :, kept] = False
    full = output(encoding, grid, grid, (q, k, v), visible=~hidden)
    index = keep[:, None, :, None].expand(2, HEADS, 4, HEAD_DIM)
    kept_q, kept_k, kept_v = (tensor.gather(2, index) for tensor in (q, k, v))
    taken = terms(encoding, grid, grid, (q, k, v)).take(keep)
    for impl in ("eager", "auto"):
        result = attend(kept_q, kept_k, kept_v, taken, scale=SCALE, impl=impl)
        torch.testing.assert_close(result, full.gather(2, index))


@pytest.mark.parametrize("number", [0, 1])
@every
def test_meta_device(name: str, axes: int, number: int) -> None:
    grid = native_grid(axes, prefix=1)
    options = variants(name)[min(number, len(variants(name)) - 1)]
    try:
        real = create_encoding({"name": name, **options}, HEADS, HEAD_DIM, grid)
    except ValueError:
        return
    abstract = create_encoding({"name": name, **options}, HEADS, HEAD_DIM, grid, device="meta")
    tensors = [torch.empty(2, HEADS, grid.num_tokens, HEAD_DIM, device="meta") for _ in range(3)]
    result = attend(*tensors, abstract(grid, grid, "meta"), scale=SCALE)
    assert result.shape == (2, HEADS, grid.num_tokens, HEAD_DIM)
    assert result.device.type == "meta"
    for field, want in zip(abstract(grid, grid, "meta"), real(grid, grid, "cpu"), strict=True):
        if isinstance(want, torch.Tensor):
            assert (field.shape, field.dtype) == (want.shape, want.dtype)


@pytest.mark.parametrize("name", list_encodings())
def test_wrong_number_of_axes_says_which_are_right(name: str) -> None:
    grids = {1: TokenGrid((5,)), 2: TokenGrid((2, 3)), 3: TokenGrid((2, 3, 4)), 4: TokenGrid((2, 1, 3, 1))}
    defined = {axes for known, axes in names_and_axes() if known == name}
    for axes, grid in grids.items():
        if axes not in defined:
            with pytest.raises(ValueError, match="axes"):
                create_encoding(name, HEADS, HEAD_DIM, grid)


@pytest.mark.parametrize("name", [name for name, axes in names_and_axes() if axes == 2])
def test_transposed_image_with_swapped_parameters(name: str) -> None:
    """Height and width are alike: transposing the grid and swapping what belongs to the axes changes nothing."""
    oracle = ORACLES[name]
    if not getattr(oracle, "AXES_ALIKE", True):
        return
    tall, wide = TokenGrid((2, 3), 1), TokenGrid((3, 2), 1)
    encoding = build(name, tall)
    other = build(name, wide)
    swap = getattr(oracle, "swap_axes", swap_numbers)
    other.load_state_dict(swap(encoding.state_dict()), strict=True)
    order = torch.tensor([0, 1, 4, 2, 5, 3, 6])  # token (w, h) of the wide grid's sequence in the tall one's
    q, k, v = inputs(tall, tall)
    channels = torch.arange(HEAD_DIM)
    times = getattr(oracle, "AXES_HAVE_CHANNELS", 0)
    if times:  # channels of the first axis, of the second, and again
        channels = channels.reshape(times, 2, -1).flip(1).flatten()
    turned = (q[:, :, order][..., channels], k[:, :, order][..., channels], v[:, :, order])
    torch.testing.assert_close(output(other, wide, wide, turned), output(encoding, tall, tall, (q, k, v))[:, :, order])


def swap_numbers(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Parameters that end in _0 and _1 change places."""
    ends = {"_0": "_1", "_1": "_0"}
    return {key[:-2] + ends.get(key[-2:], key[-2:]): value for key, value in state.items()}


@pytest.mark.parametrize("size", [(2, 3), (3, 2), (2, 5), (7, 7), (4,), (2, 3, 4)])
def test_two_offsets_never_share_an_entry_of_the_table(size: tuple[int, ...]) -> None:
    """A table of distinct values gives exactly prod(2 S - 1) of them, one for each offset."""
    grid = TokenGrid(size)
    encoding = create_encoding("bias", 1, HEAD_DIM, grid)
    encoding.table.data = torch.arange(encoding.table.numel()).reshape(encoding.table.shape).float()
    bias = dense_bias(encoding(grid, grid))
    expected = 1
    for length in size:
        expected *= 2 * length - 1
    assert bias is not None
    assert len(bias.unique()) == expected
    assert bias.max() == expected - 1


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_bias_without_distance_is_no_position(axes: int) -> None:
    grid = native_grid(axes)
    encoding = build("bias", grid, {"max_distance": 0})
    tensors = inputs(grid, grid)
    nothing = attend(*tensors, PositionTerms(), scale=SCALE)
    torch.testing.assert_close(output(encoding, grid, grid, tensors), nothing, atol=1e-6, rtol=1e-6)


@every
def test_far_offsets_saturate_and_never_wrap(name: str, axes: int) -> None:
    """Along an axis whose parameters end, a key three times as far away as they reach is as good as one at the end."""
    if "edge value" not in build(name, native_grid(axes)).card.extrapolation:
        return
    grid = native_grid(axes)
    encoding = build(name, grid)
    for sign in (1, -1):
        logits = []
        for times in (1, 3):
            away = TokenGrid((1,) * axes, origin=tuple(sign * times * size for size in grid.size))
            here = TokenGrid((1,) * axes)
            generator = torch.Generator().manual_seed(5)
            q, k = torch.randn(2, 1, HEADS, 1, HEAD_DIM, generator=generator, dtype=torch.float64)
            logits.append(position_logits(q, k, encoding(away, here), SCALE))
        torch.testing.assert_close(logits[0], logits[1])
