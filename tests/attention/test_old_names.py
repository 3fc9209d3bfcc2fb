"""Names of before, for one release: they warn, name the new one, and do the same."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.testing import assert_close

from tests.encodings.build import SCALE, build, inputs
from vit_rpe import RelativeMultiheadAttention, TokenGrid
from vit_rpe.attention import attend, attend_by_window

GRID = TokenGrid((3, 5), num_prefix=1)


def test_weighted_is_explicit_weights() -> None:
    tensors, terms = inputs(GRID, GRID), build("shaw", GRID)(GRID, GRID)
    with pytest.warns(DeprecationWarning, match="attn_impl='weighted' is now 'explicit_weights'"):
        found = attend(*tensors, terms, scale=SCALE, impl="weighted")
    assert torch.equal(found, attend(*tensors, terms, scale=SCALE, impl="explicit_weights"))


def test_a_layer_says_so_once() -> None:
    with pytest.warns(DeprecationWarning, match="'explicit_weights'"):
        layer = RelativeMultiheadAttention(24, 3, rpe="shaw", grid=GRID, attn_impl="weighted")
    assert layer.attn_impl == "explicit_weights"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(torch.randn(2, 16, 24))


def test_attend_by_window() -> None:
    tensors, encoding = inputs(GRID, GRID), build("fire", GRID)
    with pytest.warns(DeprecationWarning, match="LazyTerms"):
        found = attend_by_window(*tensors, lambda part: encoding(part, GRID), GRID, scale=SCALE)
    assert_close(found, attend(*tensors, encoding(GRID, GRID), scale=SCALE))
