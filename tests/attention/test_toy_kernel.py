"""A new kernel touches two places: a function with what it refuses, and the table in ``attention/dispatch.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.attention.cases import compare
from vit_rpe import RelativeMultiheadAttention, TokenGrid
from vit_rpe.attention import KERNELS, Kernel, LazyTerms, Options, attend, kernels_for
from vit_rpe.models.catalogue import catalogue
from vit_rpe.position.terms import NOTHING, PositionTerms, dense_bias


def one_by_one(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    """One query after the other."""
    bias = dense_bias(terms)
    rows = []
    for query in range(q.shape[2]):
        logits = (k @ q[:, :, query, :, None])[..., 0] * options.scale
        if bias is not None:
            logits = logits + bias[..., query, :]
        if options.visible is None:
            rows.append((logits.softmax(-1)[..., None, :] @ v)[..., 0, :])
            continue
        visible = options.visible.expand(*q.shape[:3], k.shape[2])[..., query, :]
        weights = logits.masked_fill(~visible, float("-inf")).softmax(-1).nan_to_num()
        rows.append((weights[..., None, :] @ v)[..., 0, :])
    return torch.stack(rows, dim=2)


def refuses(terms: PositionTerms) -> str | None:
    """Why the terms cannot be computed so, or None."""
    if terms.rotate_q is not None or terms.on_query or terms.on_key or terms.on_value:
        return "a toy knows biases and masks only; use 'eager'"
    return None


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(KERNELS, "toy", Kernel(one_by_one, refuses))


@pytest.mark.parametrize(("name", "axes"), [("bias", 2), ("t5", 1), ("alibi", 3), ("lookhere", 2), ("rope", 2)])
@pytest.mark.parametrize("situation", ["native", "cross"])
def test_the_kernel_tests_hold_for_it(name: str, axes: int, situation: str) -> None:
    compare(name, axes, {}, situation, 1, "toy")


def test_layers_and_tables_know_it() -> None:
    layer = RelativeMultiheadAttention(24, 3, rpe="bias", grid=(3, 5), attn_impl="toy").double()
    plain = RelativeMultiheadAttention(24, 3, rpe="bias", grid=(3, 5), attn_impl="eager").double()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 15, 24, dtype=torch.float64)
    assert_close(layer(x), plain(x))
    with pytest.raises(ValueError, match="attn_impl='toy' cannot compute this attention: a toy knows biases"):
        RelativeMultiheadAttention(24, 3, rpe="rope", grid=(3, 5), attn_impl="toy")
    with pytest.raises(ValueError, match="logit_clip needs the logits"):
        RelativeMultiheadAttention(24, 3, logit_clip=2.0, attn_impl="toy")
    with pytest.raises(ValueError, match="did you mean 'toy'"):
        RelativeMultiheadAttention(24, 3, attn_impl="toyy")
    assert "toy" in kernels_for(NOTHING)
    assert {row.name for row in catalogue() if "toy" in row.kernels} >= {"bias", "alibi"}


def test_the_page_of_kernels_has_a_row_for_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    assert [name for name in KERNELS if name != "toy" and f"\n| `{name}` | " not in page] == []


def test_terms_that_are_built_later() -> None:
    """Asked by a kernel that wants them whole, and by windows."""
    tensors = [torch.randn(2, 3, 15, 8, dtype=torch.float64) for _ in range(3)]
    layer = RelativeMultiheadAttention(24, 3, rpe="bias", grid=(3, 5)).double()
    asked = []

    def build(q: TokenGrid, k: TokenGrid) -> PositionTerms:
        asked.append(q.size)
        return layer.rpe(q, k)

    lazy = LazyTerms(layer.grid, layer.grid, build)
    expected = attend(*tensors, lazy.whole(), scale=0.3, impl="eager")
    for impl, sizes in (("toy", [(3, 5)]), ("auto", [(3, 5)]), ("windows", [(3, 5)])):
        asked.clear()
        assert_close(attend(*tensors, lazy, scale=0.3, impl=impl), expected)
        assert asked == sizes
