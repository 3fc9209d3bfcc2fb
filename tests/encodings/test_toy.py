"""Adding an encoding takes one file and one oracle; everything finds it by name."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.encodings.build import SCALE, build, inputs, native_grid, output
from tests.oracles import ORACLES, Answer, Pair, attention_by_loops
from vit_rpe.encodings import (
    Card,
    PositionEncoding,
    _registry,
    create_encoding,
    list_encodings,
    register,
)
from vit_rpe.position.geometry import Device, TokenGrid, axis_offsets, expand_axis
from vit_rpe.position.terms import PositionTerms, pad_prefix


class Toy(PositionEncoding):
    """A learned scalar per head times the sum of the offsets."""

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid, *, sign: int = 1) -> None:
        super().__init__(num_heads, head_dim, grid)
        self.sign = sign
        self.pull = nn.Parameter(torch.zeros(num_heads))

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        total = sum(expand_axis(axis_offsets(q, k, axis, self.pull.device), axis, q, k) for axis in range(q.ndim))
        assert isinstance(total, torch.Tensor)
        distance = self.sign * total.reshape(q.num_patches, k.num_patches)
        return PositionTerms(bias=pad_prefix(self.pull[:, None, None] * distance, q, k))


def toy_answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    return Answer(pair.content + encoding.pull[pair.head] * encoding.sign * sum(pair.delta or ()))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))
    card = Card(paper="a test, arXiv 0000.00000", adds=("bias",), extrapolation="defined for every offset")
    register("toy", card)(Toy)
    monkeypatch.setitem(ORACLES, "toy", SimpleNamespace(answer=toy_answer, CHANGES={"sign": [{"sign": -1}]}))
    return "toy"


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_toy_follows_its_oracle(toy: str, axes: int) -> None:
    grid = native_grid(axes, prefix=1)
    assert toy in list_encodings()
    encoding = build(toy, grid, {"sign": -1})
    tensors = inputs(grid, grid, batch=1)
    expected = attention_by_loops(ORACLES[toy].answer, encoding, *tensors, grid, grid, SCALE)
    torch.testing.assert_close(output(encoding, grid, grid, tensors), expected)


def test_toy_is_found_by_name_everywhere(toy: str) -> None:
    grid = native_grid(2)
    combined = create_encoding([{"name": toy, "sign": -1}, "rope"], 2, 8, grid)
    assert combined(grid, grid).bias is not None
    assert create_encoding(toy, 2, 8, grid).resized(TokenGrid((4, 5))).grid.size == (4, 5)
    with pytest.raises(ValueError, match="did you mean 'toy'"):
        create_encoding("toyy", 2, 8, grid)


def test_a_name_is_taken_once(toy: str) -> None:
    class Other(Toy):
        pass

    with pytest.raises(ValueError, match="'toy' exists already"):
        register("toy", Toy.card)(Other)
