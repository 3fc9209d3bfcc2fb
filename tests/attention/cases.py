"""What the kernel tests share: every encoding with terms to try, and the comparison in value and gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.encodings.build import (
    SCALE,
    build,
    grid_pairs,
    inputs,
    learned,
    names_and_axes,
    native_grid,
    refuses,
    variants,
)
from vit_rpe.attention import KERNELS, attend
from vit_rpe.position.terms import PositionTerms

ON_THE_CPU = [name for name in KERNELS if name != "flex"]  # which neither learns nor takes float64 there
FAST = [name for name in ON_THE_CPU if name != "eager"]
SITUATIONS = ("native", "bigger", "cross")


def encoding_cases() -> list[Any]:
    """(name, axes, options): every encoding over every number of axes, all options in 2-D."""
    found = []
    for name, axes in names_and_axes():
        for number, options in enumerate(variants(name)):
            if number == 0 or axes == 2:
                found.append(pytest.param(name, axes, options, id=f"{name}-{axes}d-{number}"))
    return found


def expressible(impl: str, terms: PositionTerms) -> bool:
    return KERNELS[impl].refuses(terms) is None


def gradients(out: Tensor, wanted: list[Tensor]) -> list[Tensor | None]:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape).sin()
    return list(torch.autograd.grad((out * weight).sum(), wanted, allow_unused=True))


def compare(
    name: str,
    axes: int,
    options: dict[str, Any],
    situation: str,
    prefix: int,
    impl: str,
    *,
    visible: Tensor | None = None,
) -> None:
    """``impl`` against the definition, in float64: output, and gradients of q, k, v and every parameter."""
    native = native_grid(axes, prefix)
    q_grid, k_grid = grid_pairs(axes, prefix)[situation]
    if refuses(name, options, native, q_grid, k_grid):
        return
    encoding = build(name, native, options)
    tensors = inputs(q_grid, k_grid, batch=2)
    wanted = [*tensors, *learned(encoding)]
    terms = encoding(q_grid, k_grid, tensors[0].device)
    if not expressible(impl, terms):
        with pytest.raises(ValueError, match="cannot compute"):
            attend(*tensors, terms, scale=SCALE, impl=impl)
        return
    expected = attend(*tensors, terms, scale=SCALE, visible=visible, impl="eager")
    expected_gradients = gradients(expected, wanted)
    terms = encoding(q_grid, k_grid, tensors[0].device)
    found = attend(*tensors, terms, scale=SCALE, visible=visible, impl=impl)
    assert_close(found, expected)
    for mine, other in zip(gradients(found, wanted), expected_gradients, strict=True):
        zero = torch.zeros(())
        assert_close(zero if mine is None else mine, zero if other is None else other, check_dtype=False)
    with torch.no_grad():
        terms = encoding(q_grid, k_grid, tensors[0].device)
        assert_close(attend(*tensors, terms, scale=SCALE, visible=visible, impl=impl), expected)
