"""Heads that are mixed before and after the softmax, against plain loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall, HeadMix, MixedByLayer
from vit_rpe.encodings import create_encoding
from vit_rpe.position.geometry import TokenGrid

HEADS, WIDTH, GRID = 3, 4, TokenGrid((2, 3))


def call(rpe: str = "bias", dropout_p: float = 0.0) -> AttentionCall:
    torch.manual_seed(0)
    encoding = create_encoding(rpe, HEADS, WIDTH, GRID).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    q, k, v = (torch.randn(2, HEADS, 6, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mixes = [HeadMix(torch.randn(HEADS, HEADS).double(), torch.randn(HEADS).double()) for _ in range(2)]
    visible = torch.rand(2, 1, 6, 6) > 0.2
    return AttentionCall(
        *(q, k, v, encoding(GRID, GRID), visible, 0.5, lambda out: out),
        dropout_p=dropout_p,
        q_grid=GRID,
        k_grid=GRID,
        mix_logits=mixes[0],
        mix_weights=mixes[1],
    )


def loops(made: AttentionCall) -> tuple[Tensor, Tensor]:
    """Weights behind the softmax and attended values."""
    plain = made._replace(mix_logits=None, mix_weights=None, visible=None)
    logits = plain.q @ plain.k.mT * 0.5 + plain.position_logits()
    weights, out = torch.zeros_like(logits), torch.zeros_like(made.v)
    before, after = made.mix_logits, made.mix_weights
    assert before is not None
    assert after is not None
    assert made.visible is not None
    for sample in range(2):
        for head in range(HEADS):
            mixed = sum(before.weight[head, each] * logits[sample, each] for each in range(HEADS)) + before.bias[head]
            weights[sample, head] = mixed.masked_fill(~made.visible[sample, 0], float("-inf")).softmax(-1)
        for head in range(HEADS):
            mixed = sum(after.weight[head, each] * weights[sample, each] for each in range(HEADS)) + after.bias[head]
            out[sample, head] = mixed @ made.v[sample, head]
    return weights, out


@pytest.mark.parametrize("rpe", ["bias", "decomposed", "rope", "none"])
@pytest.mark.parametrize("impl", ["auto", "eager"])
def test_they_are_the_loops(rpe: str, impl: str) -> None:
    made = call(rpe)
    weights, out = loops(made)
    torch.testing.assert_close(made.weights(), weights)
    torch.testing.assert_close(made.attend(impl), out)
    torch.testing.assert_close(made.output(made.weights()), out)
    pull = torch.randn_like(out)
    for found, expected in zip(
        torch.autograd.grad(made.attend(impl), (made.q, made.k, made.v), pull),
        torch.autograd.grad(out, (made.q, made.k, made.v), pull),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


def test_what_position_adds_is_mixed_too() -> None:
    made = call()._replace(visible=None)
    content = made._replace(position=made.terms._replace(offset_bias=(), grids=None))
    assert made.mix_logits is not None
    bias = made._replace(mix_logits=None).position_logits()
    mixed = torch.einsum("gh,bhqk->bgqk", made.mix_logits.weight, bias)
    torch.testing.assert_close(made.position_logits(), mixed)
    torch.testing.assert_close(made.content_weights(), content.weights())


def test_a_fused_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="attn_impl='sdpa' cannot mix heads: use one of auto, eager"):
        call().attend("sdpa")


def test_mixed_weights_are_dropped() -> None:
    """Half of them are zero, the others twice as large; the mean over many draws stays."""
    made = call(dropout_p=0.5)
    with torch.no_grad():
        mean = torch.stack([made.attend() for _ in range(3000)]).mean(0)
        torch.testing.assert_close(mean, made._replace(dropout_p=0.0).attend(), rtol=0.1, atol=0.3)


class Adapted(nn.Module):
    """An adapter beside a layer; it has no ``weight``."""

    def __init__(self, layer: nn.Module, added: nn.Module) -> None:
        super().__init__()
        self.layer, self.added = layer, added

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.added(x)


@pytest.mark.parametrize("heads_last", [True, False])
def test_a_layer_that_mixes_is_called(heads_last: bool) -> None:
    """With an adapter around it: weights, output and what position adds are those of the merged layer."""
    made = call()._replace(visible=None)
    layers = [nn.Linear(HEADS, HEADS) if heads_last else nn.Conv2d(HEADS, HEADS, 1) for _ in range(4)]
    layers = [layer.double() for layer in layers]
    adapted = [MixedByLayer(Adapted(*layers[at : at + 2]), heads_last=heads_last) for at in (0, 2)]
    merged = [
        HeadMix(one.weight.reshape(HEADS, HEADS) + two.weight.reshape(HEADS, HEADS), one.bias + two.bias)
        for one, two in (layers[:2], layers[2:])
    ]
    called = made._replace(mix_logits=adapted[0], mix_weights=adapted[1])
    read = made._replace(mix_logits=merged[0], mix_weights=merged[1])
    torch.testing.assert_close(called.weights(), read.weights())
    torch.testing.assert_close(called.attend(), read.attend())
    torch.testing.assert_close(called.position_logits(), read.position_logits())
