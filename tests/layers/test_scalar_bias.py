"""The stand-alone 1-D scalar bias."""

import pytest
import torch

from vit_rpe import RelativePositionBias


def test_every_entry_is_the_clipped_distance():
    module = RelativePositionBias(num_heads=3, max_relative_distance=4)
    with torch.no_grad():
        module.encoding.table.copy_(torch.arange(27.0).reshape(3, 9) * 10)
    bias = module(9)
    assert bias.shape == (1, 3, 9, 9)
    for head in range(3):
        for i in range(9):
            for j in range(9):
                clipped = max(-4, min(4, i - j))
                assert bias[0, head, i, j].item() == (head * 9 + clipped + 4) * 10


def test_length_one_and_gradient():
    module = RelativePositionBias(2, max_relative_distance=3)
    module(1).sum().backward()
    grad = module.encoding.table.grad
    assert grad[:, 3].tolist() == [1.0, 1.0]
    assert grad.sum() == 2


def test_default_distance_and_dtype():
    module = RelativePositionBias(2, dtype=torch.float64)
    assert module.encoding.table.shape == (2, 65)
    assert module(3).dtype == torch.float64


@pytest.mark.parametrize("arguments", [(0,), (2, -1)])
def test_bad_arguments(arguments):
    with pytest.raises(ValueError, match="must be"):
        RelativePositionBias(*arguments)


def test_bad_length():
    with pytest.raises(ValueError, match="at least one token"):
        RelativePositionBias(2)(0)
