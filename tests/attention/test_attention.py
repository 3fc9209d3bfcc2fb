"""Attention: the definition against plain loops, every kernel against the definition, and the faults of the field."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from tests.all_terms import HEADS, WIDTH, everything
from tests.attention.cases import FAST
from tests.oracles._loops import token_positions
from vit_rpe.attention import attend, attention_weights, rotate
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.masks import padding
from vit_rpe.position.terms import PositionTerms, dense_bias, dense_index

GRID = TokenGrid((2, 3), 1)
BATCH, SCALE = 3, 0.4
BOTH = pytest.mark.parametrize("impl", ["eager", "sdpa"])


def qkv(batch: int = BATCH, dtype: torch.dtype = torch.float64, grad: bool = True) -> list[Tensor]:
    shape = (batch, HEADS, GRID.num_tokens, WIDTH)
    return [torch.randn(shape, dtype=dtype, requires_grad=grad) for _ in range(3)]


def without_values(terms: PositionTerms) -> PositionTerms:
    return terms._replace(on_value=())


def by_loops(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms) -> tuple[Tensor, Tensor]:
    """Output and weights, one number at a time, from what the docstring of PositionTerms says."""
    bias, scale = dense_bias(terms), SCALE * terms.scale
    places = token_positions(GRID)
    radii = terms.geometric_mask.window
    out, weights = torch.zeros_like(v), torch.zeros(BATCH, HEADS, GRID.num_tokens, GRID.num_tokens)

    def vector(part, h: int, i: int, j: int) -> Tensor:
        number = int(dense_index(terms, part)[i, j])
        return part.table[h, number] if number >= 0 else torch.zeros(WIDTH)

    def reaches(h: int, i: int, j: int) -> bool:
        here, there = places[i], places[j]
        if here is None or there is None:
            return True
        delta = [a - b for a, b in zip(here, there, strict=True)]
        near = all(abs(steps) <= radius for steps, radius in zip(delta, radii, strict=True))
        entry = tuple(steps + size - 1 for steps, size in zip(delta, GRID.size, strict=True))
        return near and bool(terms.offset_visible[(h, *entry)])

    for b in range(BATCH):
        for h in range(HEADS):
            turned_q, turned_k = (
                torch.complex(x[b, h, :, : WIDTH // 2], x[b, h, :, WIDTH // 2 :])
                * torch.complex(*turn).to(torch.complex128)[h]
                for x, turn in ((q, terms.rotate_q), (k, terms.rotate_k))
            )
            for i in range(GRID.num_tokens):
                logits = {}
                for j in range(GRID.num_tokens):
                    if not terms.visible[h, i, j] or not reaches(h, i, j):
                        continue
                    logit = (turned_q[i] * turned_k[j].conj()).real.sum()
                    logit = logit + sum(q[b, h, i] @ vector(part, h, i, j).double() for part in terms.on_query)
                    logit = logit + sum(k[b, h, j] @ vector(part, h, i, j).double() for part in terms.on_key)
                    for left, right in terms.features:
                        added = (left[0, h % len(left[0]), i] * right[0, h % len(right[0]), j]).sum()
                        logit = logit + added / scale
                    logits[j] = torch.exp(scale * logit + bias[h, i, j])
                for j, value in logits.items():
                    weight = value / sum(logits.values())
                    weights[b, h, i, j] = weight
                    out[b, h, i] += weight * v[b, h, j]
                    out[b, h, i] += weight * sum(vector(part, h, i, j) for part in terms.on_value)
    return out, weights


def test_the_definition_by_loops() -> None:
    terms = everything(GRID)
    terms.visible[0, 2] = False
    tensors = qkv(grad=False)
    out, weights = by_loops(*tensors, terms)
    torch.testing.assert_close(
        attention_weights(*tensors[:2], terms, scale=SCALE), weights.double(), atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(attend(*tensors, terms, scale=SCALE), out, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("impl", FAST)
@pytest.mark.parametrize("hidden", ["nothing", "some", "a whole row"])
def test_kernels_agree_in_value_and_gradient(impl: str, hidden: str) -> None:
    terms = without_values(everything(GRID))
    parts = [terms.bias, terms.prefix_bias, *terms.offset_bias, *(part.bias for part in terms.axis_bias)]
    parts += [part.table for part in (*terms.on_query, *terms.on_key)]
    if impl == "fold":  # what depends on both coordinates of the key at once does not fold
        terms = PositionTerms(
            axis_bias=terms.axis_bias,
            grids=terms.grids,
            rotate_q=terms.rotate_q,
            rotate_k=terms.rotate_k,
            features=terms.features,
        )
        parts = [part.bias for part in terms.axis_bias]
    parts += [side for pair in terms.features for side in pair]
    parts = [part.requires_grad_() for part in parts]
    visible = None
    if hidden != "nothing":
        visible = torch.rand(BATCH, GRID.num_tokens, GRID.num_tokens) > 0.3
        visible[1, 3] = hidden != "a whole row"
    tensors = qkv()
    if impl == "fold" and hidden != "nothing":
        pytest.skip(reason="folding is for attention without a mask; its own tests say so")
    results = []
    for name in ("eager", impl):
        out = attend(*tensors, terms, scale=SCALE, visible=visible, impl=name)
        results.append((out, torch.autograd.grad(out.square().sum(), [*tensors, *parts])))
    torch.testing.assert_close(results[0], results[1], atol=1e-6, rtol=1e-5)


@BOTH
def test_a_query_that_sees_no_key_gives_zeros(impl: str) -> None:
    """Exact zeros and finite gradients, in the output and in the weights."""
    tensors = qkv()
    visible = torch.ones(BATCH, GRID.num_tokens, GRID.num_tokens, dtype=torch.bool)
    visible[1, 2] = False
    terms = PositionTerms(bias=torch.randn(HEADS, GRID.num_tokens, GRID.num_tokens))
    out = attend(*tensors, terms, scale=SCALE, visible=visible, impl=impl)
    assert (out[1, :, 2] == 0).all()
    assert (out[1, :, 1] != 0).any()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.square().sum(), tensors))
    weights = attention_weights(*tensors[:2], terms, scale=SCALE, visible=visible)
    assert weights[1, :, 2].sum() == 0
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(HEADS, GRID.num_tokens, dtype=torch.float64))


@BOTH
@pytest.mark.parametrize("batch", [HEADS, BATCH])
def test_a_hidden_key_influences_nobody(impl: str, batch: int) -> None:
    """Batch equal to heads or not: a mask of three axes is (batch, query, key), and (batch, key) is padding."""
    q, k, v = qkv(batch, grad=False)
    seen = torch.ones(batch, GRID.num_tokens, dtype=torch.bool)
    seen[0, 4] = False
    rows = seen[:, None, :].expand(batch, GRID.num_tokens, GRID.num_tokens)
    terms = PositionTerms(bias=torch.randn(HEADS, GRID.num_tokens, GRID.num_tokens).double())
    changed_k, changed_v = k.clone(), v.clone()
    changed_k[0, :, 4] += 1e3
    changed_v[0, :, 4] += 1e3
    for visible in (rows, padding(seen)):
        before = attend(q, k, v, terms, scale=SCALE, visible=visible, impl=impl)
        after = attend(q, changed_k, changed_v, terms, scale=SCALE, visible=visible, impl=impl)
        torch.testing.assert_close(after, before, atol=1e-6, rtol=0)
        everyone = attend(q, k, v, terms, scale=SCALE, impl=impl)
        torch.testing.assert_close(before[1:], everyone[1:])
        assert not torch.equal(before[0], everyone[0])


@pytest.mark.parametrize("bias_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("masked", [False, True])
@BOTH
def test_any_mix_of_dtypes_runs(impl: str, masked: bool, dtype: torch.dtype, bias_dtype: torch.dtype) -> None:
    tensors = qkv(dtype=torch.float32, grad=False)
    bias = torch.randn(HEADS, GRID.num_tokens, GRID.num_tokens).to(bias_dtype)
    visible = torch.rand(1, GRID.num_tokens, GRID.num_tokens) > 0.2 if masked else None
    expected = attend(*tensors, PositionTerms(bias=bias.float()), scale=SCALE, visible=visible, impl="eager")
    low = [tensor.to(dtype) for tensor in tensors]
    for autocast in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            actual = attend(*low, PositionTerms(bias=bias), scale=SCALE, visible=visible, impl=impl)
        assert actual.dtype == dtype or autocast
        torch.testing.assert_close(actual.float(), expected, atol=4e-2, rtol=2e-2)


@BOTH
def test_dropout_is_the_callers(impl: str) -> None:
    tensors = qkv(grad=False)
    terms = PositionTerms(bias=torch.randn(HEADS, GRID.num_tokens, GRID.num_tokens).double())

    def run(probability: float) -> Tensor:
        return attend(*tensors, terms, scale=SCALE, dropout_p=probability, impl=impl)

    assert torch.equal(run(0.0), run(0.0))
    assert not torch.equal(run(0.5), run(0.5))
    assert torch.equal(run(0.0), run(0.0))
    mean = torch.stack([run(0.5) for _ in range(2000)]).mean(0)
    torch.testing.assert_close(mean, run(0.0), atol=0.15, rtol=0)


def test_logit_clip_caps_before_masking() -> None:
    q, k, v = qkv(grad=False)
    visible = torch.rand(BATCH, GRID.num_tokens, GRID.num_tokens) > 0.3
    visible[:, :, 0] = True
    logits = SCALE * q @ k.mT
    expected = (2 * torch.tanh(logits / 2)).masked_fill(~visible[:, None], float("-inf")).softmax(-1)
    weights = attention_weights(q, k, PositionTerms(), scale=SCALE, visible=visible, logit_clip=2.0)
    torch.testing.assert_close(weights, expected)
    out = attend(q, k, v, PositionTerms(), scale=SCALE, visible=visible, logit_clip=2.0)
    torch.testing.assert_close(out, expected @ v)
    with pytest.raises(ValueError, match="logit_clip"):
        attend(q, k, v, PositionTerms(), scale=SCALE, logit_clip=2.0, impl="sdpa")


def test_a_kernel_that_cannot_says_why() -> None:
    tensors = qkv(grad=False)
    with pytest.raises(ValueError, match="did you mean 'eager'"):
        attend(*tensors, PositionTerms(), scale=SCALE, impl="eagr")
    with pytest.raises(ValueError, match="values"):
        attend(*tensors, everything(GRID), scale=SCALE, impl="sdpa")


def test_weights_are_float32_or_better_and_ignore_autocast() -> None:
    q, k, _ = qkv(dtype=torch.float32, grad=False)
    terms = PositionTerms(bias=torch.randn(HEADS, GRID.num_tokens, GRID.num_tokens))
    expected = attention_weights(q, k, terms, scale=SCALE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(attention_weights(q, k, terms, scale=SCALE), expected)
    assert attention_weights(q.half(), k.half(), terms, scale=SCALE).dtype == torch.float32


def test_rotation_turns_pairs_half_a_width_apart() -> None:
    x = torch.randn(BATCH, HEADS, 5, WIDTH)
    angles = torch.randn(5, WIDTH // 2)
    turned = rotate(x, (angles.cos(), angles.sin()))
    whole = torch.complex(x[..., : WIDTH // 2], x[..., WIDTH // 2 :]) * torch.polar(torch.ones(5, 4), angles)
    torch.testing.assert_close(turned, torch.cat([whole.real, whole.imag], dim=-1))
    assert rotate(x, None) is x
    assert rotate(x.half(), (angles.cos(), angles.sin())).dtype == torch.float16


def test_a_batch_of_one_and_one_head_table_broadcast() -> None:
    q, k, v = qkv(grad=False)
    shared = torch.randn(1, GRID.num_tokens, GRID.num_tokens).double()
    one = attend(q, k, v, PositionTerms(bias=shared), scale=SCALE)
    many = attend(q, k, v, PositionTerms(bias=shared.expand(BATCH, HEADS, -1, -1).contiguous()), scale=SCALE)
    torch.testing.assert_close(one, many)


@pytest.mark.parametrize("shape", [(BATCH, 4, 7), (BATCH, 1, 9, 4), (1, 9, 4), (5, 9, 7), (9, 7), (7,)])
def test_a_mask_of_another_shape_is_named(shape: tuple[int, ...]) -> None:
    q, k = torch.randn(BATCH, HEADS, 9, 4), torch.randn(BATCH, HEADS, 7, 4)
    visible = torch.ones(shape, dtype=torch.bool)
    for call in (partial(attend, q, k, k), partial(attention_weights, q, k)):
        with pytest.raises(ValueError, match=r"visible must be .*9, 7\)"):
            call(PositionTerms(), scale=SCALE, visible=visible)
