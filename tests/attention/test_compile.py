"""Kernels under torch.compile: one graph, the same numbers, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from vit_rpe import RelativeMultiheadAttention, TokenGrid
from vit_rpe.attention.kernels import window_plan, windows


@pytest.mark.parametrize("name", ["bias", "bias_axial", "shaw", "deberta", "rope", "rope_mixed", "irpe"])
@pytest.mark.parametrize("large", [False, True])
def test_one_graph(name: str, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(windows, "LARGE", 1)
        monkeypatch.setattr(window_plan, "GROUP", {"cpu": 1})
        monkeypatch.setattr(window_plan, "BLOCK", 1)
        monkeypatch.setattr(window_plan, "BLOCKS", 1)
    torch.compiler.reset()
    layer = RelativeMultiheadAttention(24, 2, rpe=name, grid=TokenGrid((3, 5), num_prefix=1))
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    x = torch.randn(2, 16, 24, requires_grad=True)
    found, expected = compiled(x), layer(x)
    assert_close(found, expected)
    wanted = [x, *layer.parameters()]
    for mine, other in zip(
        torch.autograd.grad(found.square().sum(), wanted),
        torch.autograd.grad(expected.square().sum(), wanted),
        strict=True,
    ):
        assert_close(mine, other, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        assert_close(compiled(x), expected)
