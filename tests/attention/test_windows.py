"""Windows of the query grid: the same result however small they are, and no bias of the whole grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from tests.attention.cases import compare, encoding_cases
from tests.encodings.build import SCALE, build, inputs, native_grid, refuses
from vit_rpe import RelativeMultiheadAttention, TokenGrid
from vit_rpe.attention import attend
from vit_rpe.attention.cpu import scratch as memory
from vit_rpe.attention.kernels import window_plan, windows
from vit_rpe.encodings import create_encoding
from vit_rpe.position import offset_tables


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_plan, "GROUP", {"cpu": 1})
    monkeypatch.setattr(window_plan, "BLOCK", 1)
    monkeypatch.setattr(window_plan, "BLOCKS", 1)
    monkeypatch.setattr(offset_tables, "FEW_PAIRS", 0)  # few pairs need no memory of their own


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("name", "axes", "options"), encoding_cases())
def test_one_row_and_one_head_at_a_time(name: str, axes: int, options: dict[str, Any]) -> None:
    compare(name, axes, options, "native", 2, "windows")
    if not options:
        compare(name, axes, options, "cross", 0, "windows")


@pytest.mark.usefixtures("_small")
def test_masks_and_uneven_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_plan, "BLOCK", 6)
    grid = TokenGrid((5, 3), num_prefix=2)
    encoding = build("bias", grid, {"prefix": "learned"})
    tensors = inputs(grid, grid)
    visible = torch.rand(2, 3, 17, 17) > 0.3
    visible[1, 2, 7] = False
    terms = encoding(grid, grid)
    found = attend(*tensors, terms, scale=SCALE, visible=visible, impl="windows")
    assert_close(found, attend(*tensors, terms, scale=SCALE, visible=visible, impl="eager"))


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("names", [["bias"], ["bias", "t5", "cpb"]])
def test_memory_that_windows_share_is_never_in_use_twice(names: list[str]) -> None:
    """Without gradients one block of memory holds the bias of one window after the other; several encodings add up."""
    layer = RelativeMultiheadAttention(24, 3, rpe=names, grid=(5, 3), attn_impl="windows").double()
    for parameter in layer.rpe.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 15, 24, dtype=torch.float64)
    with torch.no_grad():
        found, again = layer(x), layer(x)
        layer.attn_impl = "eager"
        assert_close(found, layer(x))
    assert torch.equal(found, again)


@pytest.mark.usefixtures("_small")
def test_windows_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    places = []
    take = memory.Scratch.take

    def watched(scratch: memory.Scratch, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        kept = take(scratch, shape, like)
        places.append(kept.data_ptr())
        return kept

    monkeypatch.setattr(memory.Scratch, "take", watched)
    layer = RelativeMultiheadAttention(24, 3, rpe="bias", grid=(5, 3), attn_impl="windows")
    with torch.no_grad():
        layer(torch.randn(2, 15, 24))
    assert len(places) == 5 * 3  # a row of the grid and one head at a time
    assert len(set(places)) == 1


@pytest.mark.parametrize(
    ("threads", "batch", "blocks"), [(1, 1, 3), (2, 1, 4), (2, 2, 3), (3, 1, 3), (8, 1, 8), (8, 4, 4)]
)
def test_windows_occupy_every_thread(threads: int, batch: int, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    q = torch.empty(batch, 1, 64 * 64, 8)
    grid = TokenGrid((64, 64))
    plan = window_plan.plan_windows(q, q, (grid, grid), batch=1)
    assert window_plan.num_tokens(plan.windows[0].queries, grid) == blocks * window_plan.BLOCK
    assert blocks * batch % threads == 0


def test_auto_takes_windows_where_the_bias_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = TokenGrid((5, 3))
    terms = build("bias", grid)(grid, grid)
    q, k, _ = inputs(grid, grid)
    assert not windows.pays(q, k, terms)
    monkeypatch.setattr(windows, "LARGE", 15 * 15 * 3 * 8)
    assert windows.pays(q, k, terms)
    monkeypatch.setattr(windows, "LARGE", 15 * 15 * 3 * 8 + 1)
    assert not windows.pays(q, k, terms)


@pytest.mark.parametrize("name", ["fire", "irpe", "bias"])
@pytest.mark.parametrize("shared", [False, True])
def test_layer_asks_by_window(name: str, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms with an entry per pair are never asked for the whole grid, and the layer's output is the same."""
    grid = TokenGrid((5, 3), num_prefix=1)
    layer = RelativeMultiheadAttention(24, 2, rpe=[name, "rope"] if not shared else name, grid=grid, causal=shared)
    if name == "fire":
        next(own for path, own in layer.rpe.named_parameters() if path.endswith("L")).data.fill_(
            0.5
        )  # below all distances
    x = torch.randn(2, 16, 24, requires_grad=True)
    handed = create_encoding("alibi", 2, 12, grid)(grid, grid) if shared else None
    expected = layer(x, shared=handed)
    expected_gradient = torch.autograd.grad(expected.square().sum(), [x, *layer.rpe.parameters()])
    asked = []
    layer.rpe.register_forward_pre_hook(lambda module, arguments: asked.append(arguments[0].size))
    monkeypatch.setattr(windows, "LARGE", 1)
    monkeypatch.setattr(window_plan, "GROUP", {"cpu": 1})
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
    assert not dense or encoding.has_entry_per_pair(grid, grid)
    assert encoding.card.per_pair or not encoding.has_entry_per_pair(grid, grid)


@pytest.mark.parametrize("name", ["fire", "lookhere", "irpe"])
def test_terms_per_pair_in_windows_on_a_small_grid(name: str) -> None:
    layer = RelativeMultiheadAttention(24, 3, rpe=name, grid=(5, 3), attn_impl="windows").double()
    plain = RelativeMultiheadAttention(24, 3, rpe=name, grid=(5, 3), attn_impl="eager").double()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 15, 24, dtype=torch.float64)
    assert_close(layer(x), plain(x))
    with torch.no_grad():
        assert_close(layer(x), plain(x))
