"""Windows of the query grid: the same result however small they are, and no bias of the whole grid."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from tests.encodings.build import SCALE, build, inputs, native_grid, refuses
from tests.kernels.cases import compare, encoding_cases
from vit_rpe import RelativeMultiheadAttention, TokenGrid
from vit_rpe.attention import attend, windows
from vit_rpe.encodings import create_encoding


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "GROUP", {"cpu": 1})
    monkeypatch.setattr(windows, "QUERIES", 1)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("name", "axes", "options"), encoding_cases())
def test_one_row_and_one_head_at_a_time(name: str, axes: int, options: dict[str, Any]) -> None:
    compare(name, axes, options, "native", 2, "windows")
    if not options:
        compare(name, axes, options, "cross", 0, "windows")


@pytest.mark.usefixtures("_small")
def test_masks_and_uneven_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "QUERIES", 6)
    grid = TokenGrid((5, 3), num_prefix=2)
    encoding = build("bias", grid, {"prefix": "learned"})
    tensors = inputs(grid, grid)
    visible = torch.rand(2, 3, 17, 17) > 0.3
    visible[1, 2, 7] = False
    terms = encoding(grid, grid)
    found = attend(*tensors, terms, scale=SCALE, visible=visible, impl="windows")
    assert_close(found, attend(*tensors, terms, scale=SCALE, visible=visible, impl="eager"))


def test_auto_takes_windows_where_the_bias_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = TokenGrid((5, 3))
    terms = build("bias", grid)(grid, grid)
    q, k, _ = inputs(grid, grid)
    assert not windows.pays(q, k, terms)
    monkeypatch.setattr(windows, "LARGE", 15 * 15 * 3 * 8)
    assert windows.pays(q, k, terms)
    monkeypatch.setattr(windows, "LARGE", 15 * 15 * 3 * 8 + 1)
    assert not windows.pays(q, k, terms)


@pytest.mark.parametrize("name", ["fire", "lookhere", "irpe", "bias"])
@pytest.mark.parametrize("shared", [False, True])
def test_layer_asks_by_window(name: str, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms with an entry per pair are never asked for the whole grid, and the layer's output is the same."""
    grid = TokenGrid((5, 3), num_prefix=1)
    layer = RelativeMultiheadAttention(24, 2, rpe=[name, "rope"] if not shared else name, grid=grid, causal=shared)
    x = torch.randn(2, 16, 24, requires_grad=True)
    handed = create_encoding("alibi", 2, 12, grid)(grid, grid) if shared else None
    expected = layer(x, shared=handed)
    expected_gradient = torch.autograd.grad(expected.square().sum(), [x, *layer.rpe.parameters()])
    asked = []
    layer.rpe.register_forward_pre_hook(lambda module, arguments: asked.append(arguments[0].size))
    monkeypatch.setattr(windows, "LARGE", 1)
    monkeypatch.setattr(windows, "GROUP", {"cpu": 1})
    found = layer(x, shared=handed)
    assert_close(found, expected)
    found_gradient = torch.autograd.grad(found.square().sum(), [x, *layer.rpe.parameters()])
    for mine, other in zip(found_gradient, expected_gradient, strict=True):
        assert_close(mine, other, rtol=1e-4, atol=1e-5)
    if name != "bias":
        assert set(asked) == {(1, 3)}


@pytest.mark.parametrize(("name", "axes", "options"), encoding_cases())
def test_only_what_says_so_has_an_entry_per_pair(name: str, axes: int, options: dict[str, Any]) -> None:
    grid = native_grid(axes, prefix=1)
    if refuses(name, options, grid):
        return
    encoding = build(name, grid, options)
    terms = encoding(grid, grid)
    vectors = (*terms.on_query, *terms.on_key, *terms.on_value)
    dense = terms.bias is not None or terms.visible is not None or any(part.axis is None for part in vectors)
    assert not dense or encoding.card.per_pair
