"""Kernels at awkward lengths, in low precision, with dropout and padding, across sequences, training only the bias."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from tests.attention.cases import FAST, expressible, gradients
from vit_rpe import RelativeMultiheadAttention, TokenGrid, attend
from vit_rpe.encodings import create_encoding, list_encodings

NAMES = ("bias", "bias_axial", "shaw", "transformer_xl", "deberta", "rope", "irpe", "lookhere")
GRIDS = {
    5: TokenGrid((2, 2), num_prefix=1),
    65: TokenGrid((4, 16), num_prefix=1),
    197: TokenGrid((14, 14), num_prefix=1),
    64: TokenGrid((16, 4)),
    33: TokenGrid((3, 11)),
    98: TokenGrid((7, 14)),
}
HEADS, WIDTH = 2, 16


def kernels(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Every encoding with every kernel that can express it, and with the choice of ``auto``."""
    grid = TokenGrid((2, 3))
    found = []
    for name in names:
        terms = create_encoding(name, HEADS, WIDTH, grid)(grid, grid)
        found += [(name, impl) for impl in FAST if expressible(impl, terms)]
        found.append((name, "auto"))
    return found


def made(name: str, grid: TokenGrid, dtype: torch.dtype = torch.float64):
    encoding = create_encoding(name, HEADS, WIDTH, grid, dtype=dtype)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    return encoding


def tensors(grid: TokenGrid, key: TokenGrid, dtype: torch.dtype = torch.float64):
    lengths = (grid.num_tokens, key.num_tokens, key.num_tokens)
    return [torch.randn(2, HEADS, n, WIDTH, dtype=torch.float64).to(dtype).requires_grad_() for n in lengths]


@pytest.mark.parametrize("tokens", GRIDS)
@pytest.mark.parametrize(("name", "impl"), kernels(NAMES))
def test_lengths(name: str, tokens: int, impl: str) -> None:
    grid = GRIDS[tokens]
    encoding, (q, k, v) = made(name, grid), tensors(grid, grid)
    terms = encoding(grid, grid)
    wanted = [q, k, v, *(own for own in encoding.parameters() if own.requires_grad)]
    expected = attend(q, k, v, terms, scale=0.25, impl="eager")
    found = attend(q, k, v, encoding(grid, grid), scale=0.25, impl=impl)
    assert_close(found, expected)
    for mine, other in zip(gradients(found, wanted), gradients(expected, wanted), strict=True):
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            assert_close(mine, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "impl"), [*kernels(NAMES), ("bias", "eager"), ("shaw", "eager")])
def test_low_precision(name: str, dtype: torch.dtype, impl: str) -> None:
    grid = TokenGrid((5, 7), num_prefix=1)
    encoding, (q, k, v) = made(name, grid, torch.float32), tensors(grid, grid, dtype)
    terms = encoding(grid, grid)
    expected = attend(q.float(), k.float(), v.float(), terms, scale=0.25, impl="eager")
    found = attend(q, k, v, terms, scale=0.25, impl=impl)
    assert found.dtype == dtype
    assert_close(found.float(), expected, atol=4e-2, rtol=4e-2)


@pytest.mark.parametrize(("name", "impl"), kernels(("bias", "bias_axial", "deberta")))
def test_training_only_the_encoding(name: str, impl: str) -> None:
    grid = TokenGrid((3, 5))
    layer = RelativeMultiheadAttention(32, 2, rpe=name, grid=grid, attn_impl=impl)
    layer.requires_grad_(False)
    layer.rpe.requires_grad_(True)
    x = torch.randn(2, 15, 32)
    torch.nn.init.normal_(next(layer.rpe.parameters()))
    found = torch.autograd.grad(layer(x).square().sum(), list(layer.rpe.parameters()))
    layer.attn_impl = "eager"
    expected = torch.autograd.grad(layer(x).square().sum(), list(layer.rpe.parameters()))
    for mine, other in zip(found, expected, strict=True):
        assert_close(mine, other, rtol=1e-4, atol=1e-5)
    assert all(gradient.abs().max() > 0 for gradient in found[:1])


@pytest.mark.parametrize(("name", "impl"), kernels(("bias", "shaw", "bias_axial")))
def test_dropout_keeps_the_mean(name: str, impl: str) -> None:
    """Weights are dropped and the others scaled: on average the output, relative values included, is as without."""
    grid = TokenGrid((2, 3))
    encoding, (q, k, v) = made(name, grid), tensors(grid, grid)
    terms = encoding(grid, grid)
    with torch.no_grad():
        expected = attend(q, k, v, terms, scale=0.25, impl="eager")
        many = [x.repeat_interleave(1500, 0) for x in (q, k, v)]
        found = attend(*many, terms, scale=0.25, dropout_p=0.4, impl=impl)
    assert not torch.allclose(found[0], found[1])
    mean = found.unflatten(0, (2, 1500)).mean(1)
    assert_close(mean, expected, atol=0.15, rtol=0)


@pytest.mark.parametrize(("name", "impl"), kernels(NAMES))
def test_across_sequences_with_padding(name: str, impl: str) -> None:
    q_grid, k_grid = TokenGrid((2, 4), num_prefix=1), TokenGrid((5, 3))
    encoding, (q, k, v) = made(name, k_grid), tensors(q_grid, k_grid)
    terms = encoding(q_grid, k_grid)
    visible = torch.ones(2, 1, 1, 15, dtype=torch.bool)
    visible[0, ..., 11:] = False
    visible[1] = False  # one sample sees nothing at all
    expected = attend(q, k, v, terms, scale=0.25, visible=visible, impl="eager")
    found = attend(q, k, v, terms, scale=0.25, visible=visible, impl=impl)
    assert_close(found, expected)
    assert found[1].abs().max() == 0
    for mine, other in zip(gradients(found, [q, k, v]), gradients(expected, [q, k, v]), strict=True):
        assert_close(mine, other)


@pytest.mark.parametrize(("name", "impl"), kernels(tuple(list_encodings())))
def test_no_sample(name: str, impl: str) -> None:
    """A batch of none, as a router may leave one, with its gradients."""
    layer = RelativeMultiheadAttention(HEADS * WIDTH, HEADS, rpe=name, grid=GRIDS[33], attn_impl=impl)
    out = layer(torch.zeros(0, 33, HEADS * WIDTH, requires_grad=True))
    out.sum().backward()
    assert out.shape == (0, 33, HEADS * WIDTH)
    assert not any(parameter.grad.any() for parameter in layer.parameters() if parameter.grad is not None)
