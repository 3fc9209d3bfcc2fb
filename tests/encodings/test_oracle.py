"""Every encoding against its oracle: output and all gradients, over axes, prefix tokens, grids and options."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.encodings.build import (
    SCALE,
    build,
    grid_pairs,
    inputs,
    learned,
    names_and_axes,
    native_grid,
    output,
    refuses,
    variants,
)
from tests.oracles import ORACLES, attention_by_loops
from vit_rpe.encodings import list_encodings


def cases() -> list[Any]:
    """The default options in every situation; the other options in one situation each, all of them if exhaustive."""
    found = []
    for name, axes in names_and_axes():
        if name not in ORACLES:
            continue
        for number, options in enumerate(variants(name)):
            for which, situation in enumerate(grid_pairs(axes)):
                for prefix in (0, 1, 4):
                    if number > 0:
                        sampled = (which, prefix) == (1 + number % 4, 1)
                    elif axes == 2:
                        sampled = prefix == 1 or situation == "window"
                    else:  # the whole 3-D grid is by far the largest
                        sampled = prefix == 1 and (axes == 1 or situation in ("window", "bigger", "pooled"))
                    marks = () if sampled else (pytest.mark.exhaustive,)
                    label = f"{name}-{number}-{axes}d-{situation}-p{prefix}"
                    found.append(pytest.param(name, axes, options, situation, prefix, id=label, marks=marks))
    return found


@pytest.mark.parametrize("name", list_encodings())
def test_every_encoding_has_an_oracle(name: str) -> None:
    assert name in ORACLES, f"write tests/oracles/{name}.py"


@pytest.mark.parametrize(("name", "axes", "options", "situation", "prefix"), cases())
def test_output_and_gradients(name: str, axes: int, options: dict[str, Any], situation: str, prefix: int) -> None:
    native = native_grid(axes, prefix)
    q_grid, k_grid = grid_pairs(axes, prefix)[situation]
    if refuses(name, options, native, q_grid, k_grid):
        with pytest.raises(ValueError):
            build(name, native, options)(q_grid, k_grid)
        return
    encoding = build(name, native, options)
    tensors = inputs(q_grid, k_grid, batch=1)
    wanted = [*tensors, *learned(encoding)]

    expected = attention_by_loops(ORACLES[name].answer, encoding, *tensors, q_grid, k_grid, SCALE)
    pull = torch.randn_like(expected)
    expected_grads = torch.autograd.grad(expected, wanted, pull, allow_unused=True)
    for impl in ("eager", "auto"):
        actual = output(encoding, q_grid, k_grid, tensors, impl=impl)
        torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-4)
        grads = torch.autograd.grad(actual, wanted, pull, allow_unused=True)
        for got, want in zip(grads, expected_grads, strict=True):
            zero = torch.zeros(())
            torch.testing.assert_close(
                zero if got is None else got.sum() if want is None else got,
                zero if want is None and got is None else zero.to(got) if want is None else want,
                atol=1e-4,
                rtol=1e-3,
                check_dtype=False,
            )
