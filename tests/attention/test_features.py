"""Features: products of channels of queries and keys, added to the logits; they may differ from sample to sample."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from tests.attention.cases import ON_THE_CPU, gradients
from vit_rpe import TokenGrid
from vit_rpe.attention import attend, choose, kernels_for
from vit_rpe.attention.kernels import window_plan
from vit_rpe.position.slicing import take_heads
from vit_rpe.position.terms import Features, PositionTerms, combine

GRID = TokenGrid((5, 3), num_prefix=2)


def features(batch: int, heads: int) -> Features:
    left = torch.randn(batch, heads, GRID.num_tokens, 4, dtype=torch.float64, requires_grad=True)
    return Features(left, torch.randn(1, 3, GRID.num_tokens, 4, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("impl", ["auto", *ON_THE_CPU])
@pytest.mark.parametrize("batch", [1, 2])
def test_every_kernel_adds_the_product(impl: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLOCK", "BLOCKS"):
        monkeypatch.setattr(window_plan, name, 1)
    monkeypatch.setattr(window_plan, "GROUP", {"cpu": 1})  # one row of the grid and one head at a time
    pair = features(batch, 1)
    tensors = [torch.randn(2, 3, GRID.num_tokens, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    terms = PositionTerms(features=(pair,), grids=(GRID, GRID) if impl == "windows" else None)
    found = attend(*tensors, terms, scale=0.3, impl=impl)
    q, k, v = tensors
    expected = (0.3 * q @ k.mT + pair.left @ pair.right.mT).softmax(-1) @ v
    assert_close(found, expected)
    for mine, other in zip(gradients(found, [*tensors, *pair]), gradients(expected, [*tensors, *pair]), strict=True):
        assert_close(mine, other)
    with torch.no_grad():
        assert_close(attend(*tensors, terms, scale=0.3, impl=impl), expected)


def test_parts_and_sums() -> None:
    one, other = (PositionTerms(features=(features(1, heads),)) for heads in (1, 3))
    both = combine(one, other)
    assert both.features == one.features + other.features
    assert take_heads(both, 1, 3).features[1].left.shape[1] == 2
    assert take_heads(both, 1, 3).features[0].left.shape[1] == 1
    assert "fold" in kernels_for(both)


def test_another_length_is_refused() -> None:
    q = torch.randn(2, 3, GRID.num_tokens, 8)
    short = Features(torch.randn(1, 3, 4, 2), torch.randn(1, 3, GRID.num_tokens, 2))
    with pytest.raises(ValueError, match="features' left"):
        attend(q, q, q, PositionTerms(features=(short,)), scale=0.3)


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("channels", [2, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_auto_folds_few_or_learning_features_alone(learning: bool, channels: int, dtype: torch.dtype) -> None:
    q = torch.randn(2, 3, GRID.num_tokens, 8, dtype=dtype)
    pair = Features(*(torch.randn(1, 3, GRID.num_tokens, channels, requires_grad=learning) for _ in range(2)))
    terms = PositionTerms(features=(pair,))
    wanted = "fold" if dtype == torch.float32 and (learning or channels == 2) else "sdpa"
    assert choose(q, q, terms, None) == wanted
    with torch.no_grad():
        assert choose(q, q, terms, None) == ("fold" if channels == 2 and wanted == "fold" else "sdpa")
    biased = terms._replace(bias=torch.zeros(1, GRID.num_tokens, GRID.num_tokens))
    assert choose(q, q, biased, None) == "sdpa"
