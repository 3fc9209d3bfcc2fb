"""Queries and keys that position moves before their product: blocks and polar, in every kernel, beside other terms."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from tests.attention.cases import ON_THE_CPU, gradients
from vit_rpe import TokenGrid, VisionTransformer
from vit_rpe.attention import attend
from vit_rpe.attention.call import AttentionCall
from vit_rpe.attention.kernels import window_plan
from vit_rpe.position.terms import AxisBias, PositionTerms, combine
from vit_rpe.viz.explorer.payload import pack_terms
from vit_rpe.viz.recording.record import record

GRID = TokenGrid((5, 3), num_prefix=2)
N, HEADS, WIDTH, BLOCK = GRID.num_tokens, 3, 8, 4


def moved(kind: str, heads: int) -> PositionTerms:
    """Terms of one kind that need gradients, other for queries and keys."""
    if kind == "blocks":
        q, k = (torch.randn(heads, N, WIDTH // BLOCK, BLOCK, BLOCK).double().requires_grad_() for _ in range(2))
        return PositionTerms(blocks_q=q, blocks_k=k)
    sides = [tuple(torch.randn(heads, N, WIDTH).double().requires_grad_() for _ in range(2)) for _ in range(2)]
    return PositionTerms(polar_q=sides[0], polar_k=sides[1])


def parts(terms: PositionTerms) -> list[Tensor]:
    return [terms.blocks_q, terms.blocks_k] if terms.blocks_q is not None else [*terms.polar_q, *terms.polar_k]


def content(q: Tensor, k: Tensor, terms: PositionTerms) -> Tensor:
    """<q_i, k_j> by its definition, one query and key at a time."""
    rows = []
    for i in range(N):
        for j in range(N):
            if terms.blocks_q is not None:
                a, b = (x.unflatten(-1, (-1, BLOCK, 1)) for x in (q[:, :, i], k[:, :, j]))
                product = ((terms.blocks_q[:, i] @ a) * (terms.blocks_k[:, j] @ b)).flatten(2)
            else:
                (cos, sin), (cosine, sine) = terms.polar_q, terms.polar_k
                lengths = F.softplus(q[:, :, i]) * F.softplus(k[:, :, j])
                product = lengths * (cos[:, i] * cosine[:, j] + sin[:, i] * sine[:, j])
            rows.append(product.sum(-1))
    return torch.stack(rows, dim=-1).unflatten(-1, (N, N))


@pytest.mark.parametrize("impl", ["auto", *ON_THE_CPU])
@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("kind", ["blocks", "polar"])
def test_every_kernel_moves_them_alike(kind: str, heads: int, impl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLOCK", "BLOCKS"):
        monkeypatch.setattr(window_plan, name, 1)
    monkeypatch.setattr(window_plan, "GROUP", {"cpu": 1})  # one row of the grid and one head at a time
    q, k, v = (torch.randn(2, HEADS, N, WIDTH).double().requires_grad_() for _ in range(3))
    terms = moved(kind, heads)
    rows = torch.randn(HEADS, 3, 3).double()
    whole = terms._replace(axis_bias=(AxisBias(rows, 1),), grids=(GRID, GRID), scale=0.7)
    column = torch.arange(15) % 3
    bias = F.pad(rows[:, column][:, :, column], (2, 0, 2, 0))
    expected = (content(q, k, terms) * 0.3 * 0.7 + bias).softmax(-1) @ v
    found = attend(q, k, v, whole, scale=0.3, impl=impl)
    assert_close(found, expected)
    wanted = [q, k, v, *parts(terms)]
    for mine, other in zip(gradients(found, wanted), gradients(expected, wanted), strict=True):
        assert_close(mine, other)
    with torch.no_grad():
        assert_close(attend(q, k, v, whole, scale=0.3, impl=impl), expected)


@pytest.mark.parametrize("kind", ["blocks", "polar"])
def test_what_is_left_without_position(kind: str) -> None:
    q, k = (torch.randn(2, HEADS, N, WIDTH).double() for _ in range(2))
    terms = moved(kind, HEADS)._replace(scale=0.7)
    call = AttentionCall(q, k, q, terms, None, 0.3, lambda out: out)
    plain = F.softplus(q) @ F.softplus(k).mT if kind == "polar" else q @ k.mT
    assert_close(call.content_weights(), (plain * 0.21).softmax(-1))
    assert_close(call.position_logits(), (content(q, k, terms) - plain) * 0.21)


@pytest.mark.parametrize("kind", ["blocks", "polar"])
def test_refusals(kind: str) -> None:
    q = torch.randn(2, HEADS, N, WIDTH).double()
    one = moved(kind, HEADS)
    with pytest.raises(ValueError, match="two rotary encodings cannot be combined"):
        combine(one, moved("polar", 1))
    assert combine(PositionTerms(bias=torch.zeros(1, N, N)), one).moves
    half = one._replace(blocks_k=None, polar_k=None)
    with pytest.raises(ValueError, match=f"{kind}_q and terms.{kind}_k come together"):
        attend(q, q, q, half, scale=0.3)
    both = one._replace(rotate_q=(torch.ones(N, WIDTH // 2),) * 2)
    with pytest.raises(ValueError, match=f"one way at most, got rotate and {kind}"):
        attend(q, q, q, both, scale=0.3)
    with pytest.raises(ValueError, match=f"terms.{kind}_q must be"):
        attend(q[:, :, 1:], q, q, one, scale=0.3)


@pytest.mark.parametrize("rpe", ["liere", "pope"])
def test_the_explorer_refuses_them(rpe: str) -> None:
    model = VisionTransformer((8, 12), 4, embed_dim=24, depth=1, num_heads=3, rpe=rpe).eval()
    with torch.no_grad(), record(model) as seen:
        model(torch.randn(1, 3, 8, 12))
    with pytest.raises(ValueError, match="not by blocks nor polar"):
        pack_terms(None, seen, 0)  # type: ignore[arg-type]
