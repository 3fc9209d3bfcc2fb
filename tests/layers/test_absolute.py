"""The learned embedding as a module of its own, over one, two and three axes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from vit_rpe import LearnedEmbedding, TokenGrid

NATIVE = {1: (5,), 2: (2, 5), 3: (2, 3, 5)}
OTHER = {1: (8,), 2: (3, 7), 3: (3, 4, 6)}
AXES = pytest.mark.parametrize("axes", [1, 2, 3])


def embedding(axes: int, prefix: int = 0) -> LearnedEmbedding:
    torch.manual_seed(axes)
    module = LearnedEmbedding(TokenGrid(NATIVE[axes], prefix), 4)
    torch.nn.init.normal_(module.weight)
    return module


@AXES
def test_its_own_grid_has_the_parameter_itself(axes: int) -> None:
    module = embedding(axes, prefix=2)
    assert [name for name, _ in module.named_parameters()] == list(module.state_dict()) == ["weight"]
    assert module() is module.weight
    assert module(TokenGrid(NATIVE[axes], 2)) is module.weight
    assert module().shape == (1, TokenGrid(NATIVE[axes], 2).num_tokens, 4)


@AXES
def test_another_grid_is_interpolated_along_every_axis(axes: int) -> None:
    module = embedding(axes, prefix=1)
    found = module(TokenGrid(OTHER[axes], 1))
    expected = module.weight[0, 1:].reshape(*NATIVE[axes], 4)
    for axis, length in enumerate(OTHER[axes]):
        moved = expected.movedim(axis, -1)
        flat = moved.reshape(1, -1, 1, moved.shape[-1])
        flat = F.interpolate(flat, size=(1, length), mode="bicubic", align_corners=False, antialias=True)
        expected = flat.reshape(*moved.shape[:-1], length).movedim(-1, axis)
    assert_close(found[0, 1:], expected.reshape(-1, 4))
    assert_close(found[0, :1], module.weight[0, :1], rtol=0, atol=0)
    found.square().sum().backward()
    assert module.weight.grad is not None
    assert (module.weight.grad != 0).all()


@AXES
def test_a_part_of_a_grid_and_other_axes_are_refused(axes: int) -> None:
    module = embedding(axes, prefix=1)
    other_axes = {1: (2, 3), 2: (5,), 3: (2, 3)}[axes]
    part = TokenGrid(NATIVE[axes], 1, origin=(1,) * axes)
    for grid in (TokenGrid(other_axes, 1), TokenGrid(OTHER[axes], 0), part):
        with pytest.raises(ValueError, match="holds for whole grids"):
            module(grid)


def test_width_is_checked() -> None:
    with pytest.raises(ValueError, match="dim must be an integer of at least 1, got 0"):
        LearnedEmbedding(TokenGrid((3,)), 0)
