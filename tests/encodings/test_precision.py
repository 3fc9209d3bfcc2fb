"""float64, float16, bfloat16 and autocast: finite, close, and positions never in low precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.encodings.build import HEAD_DIM, HEADS, SCALE, build, inputs, learned, names_and_axes, native_grid, output
from tests.oracles import ORACLES
from vit_rpe.attention import attend
from vit_rpe.encodings import PositionEncoding, create_encoding
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import PositionTerms

LOW = [torch.float16, torch.bfloat16]
every = pytest.mark.parametrize(("name", "axes"), names_and_axes())


def moderate(name: str, axes: int, dtype: torch.dtype) -> PositionEncoding:
    """An encoding whose logits stay where bfloat16 can tell them apart."""
    encoding = build(name, native_grid(axes, prefix=1), dtype=dtype)
    for parameter in encoding.parameters():
        parameter.data.mul_(0.5)
    return encoding


def floats(value: Any) -> list[Tensor]:
    """All floating tensors inside a bundle of terms."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    return [tensor for item in value for tensor in floats(item)] if isinstance(value, tuple) else []


def same_values(encoding: PositionEncoding, dtype: torch.dtype) -> PositionEncoding:
    """A copy of another precision that holds the same, already rounded, values."""
    copy = create_encoding(encoding.spec, HEADS, HEAD_DIM, encoding.grid, dtype=dtype).eval()
    copy.load_state_dict(encoding.state_dict())
    return copy


@pytest.mark.parametrize("dtype", LOW)
@every
def test_terms_are_float32_or_better(name: str, axes: int, dtype: torch.dtype) -> None:
    grid = native_grid(axes, prefix=1)
    for encoding in (build(name, grid, dtype=dtype), build(name, grid)):
        assert all(t.dtype in (torch.float32, torch.float64) for t in floats(_tensors(encoding(grid, grid))))


def _tensors(terms: PositionTerms) -> tuple[Any, ...]:
    return tuple(value for field, value in zip(terms._fields, terms, strict=True) if field != "grids")


@pytest.mark.parametrize("dtype", LOW)
@every
def test_far_positions_keep_their_precision(name: str, axes: int, dtype: torch.dtype) -> None:
    """bfloat16 holds integers up to 256 only: terms must be those of the same, rounded parameters in float32."""
    sizes = {1: (9,), 2: (3, 4), 3: (2, 1, 3)}[axes]
    far = TokenGrid(sizes, origin=(297,) * axes, extent=(400,) * axes)
    near = TokenGrid(sizes, extent=(400,) * axes)
    low = build(name, native_grid(axes), dtype=dtype)
    exact = same_values(low, torch.float32)
    for q, k in ((far, far), (far, near)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = floats(_tensors(low(q, k)))
        for a, b in zip(got, floats(_tensors(exact(q, k))), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@every
def test_far_positions_do_not_collide(name: str, axes: int) -> None:
    """Beyond 256, where bfloat16 skips integers, the same offsets give the same attention as at the origin."""
    if not getattr(ORACLES[name], "OFFSET_IS_ALL", True):
        return
    near = TokenGrid({1: (9,), 2: (3, 4), 3: (2, 1, 3)}[axes], extent=(400,) * axes)
    far = replace(near, origin=(297,) * axes)
    encoding = build(name, native_grid(axes), dtype=torch.bfloat16)
    tensors = inputs(near, near, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        here, there = encoding(near, near), encoding(far, far)
    results = [attend(*tensors, terms, scale=SCALE) for terms in (here, there)]
    torch.testing.assert_close(results[1], results[0], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("impl", ["eager", "auto"])
@every
def test_low_precision_is_close(name: str, axes: int, impl: str, dtype: torch.dtype) -> None:
    grid = native_grid(axes, prefix=1)
    low = moderate(name, axes, dtype)
    tensors = inputs(grid, grid, dtype=dtype)
    expected = output(same_values(low, torch.float64), grid, grid, tuple(t.double() for t in tensors), impl=impl)
    actual = output(low, grid, grid, tensors, impl=impl)
    assert actual.dtype == dtype
    assert (actual.double() - expected).abs().max() < (6e-2 if dtype == torch.bfloat16 else 1e-2)
    grads = torch.autograd.grad(actual.float().sum(), [*tensors, *learned(low)], allow_unused=True)
    assert all(grad is None or grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("dtype", LOW)
@every
def test_autocast_is_close(name: str, axes: int, dtype: torch.dtype) -> None:
    """The usual mixed precision: float32 parameters, low-precision q, k, v from autocast layers."""
    grid = native_grid(axes, prefix=1)
    encoding = moderate(name, axes, torch.float32)
    tensors = inputs(grid, grid, dtype=dtype)
    expected = output(encoding, grid, grid, tuple(tensor.float() for tensor in tensors))
    with torch.autocast("cpu", dtype=dtype):
        actual = output(encoding, grid, grid, tensors)
    assert actual.dtype == dtype
    assert (actual.float() - expected).abs().max() < (6e-2 if dtype == torch.bfloat16 else 1e-2)
    grads = torch.autograd.grad(actual.float().sum(), [*tensors, *learned(encoding)], allow_unused=True)
    assert all(grad is None or grad.isfinite().all() for grad in grads)


@every
def test_double_precision_stays_double(name: str, axes: int) -> None:
    grid = native_grid(axes)
    encoding = build(name, grid)
    result = output(encoding, grid, grid, inputs(grid, grid))
    assert result.dtype == torch.float64
