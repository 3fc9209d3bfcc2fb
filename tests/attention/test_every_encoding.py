"""Every kernel gives what the definition gives, for every encoding, in value and gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.attention.cases import FAST, compare, encoding_cases
from tests.encodings.build import grid_pairs
from vit_rpe.attention import per_axis


@pytest.mark.parametrize("impl", FAST)
@pytest.mark.parametrize(("name", "axes", "options"), encoding_cases())
def test_as_the_definition(name: str, axes: int, options: dict[str, Any], impl: str) -> None:
    compare(name, axes, options, "native", 2, impl)
    if not options:
        compare(name, axes, options, "cross", 0, impl)


@pytest.mark.parametrize("impl", FAST)
@pytest.mark.parametrize("name", ["bias", "bias_axial", "shaw", "transformer_xl", "deberta", "rope_mixed", "irpe"])
def test_with_a_mask_and_rows_that_see_nothing(name: str, impl: str) -> None:
    q_grid, k_grid = grid_pairs(2, 1)["native"]
    visible = torch.rand(2, 1, q_grid.num_tokens, k_grid.num_tokens) > 0.4
    visible[0, 0, 3] = False
    visible[1, 0, 0] = False
    compare(name, 2, {}, "native", 1, impl, visible=visible)


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize(("name", "axes", "options"), encoding_cases())
def test_long_axes_add_instead_of_multiplying(
    name: str, axes: int, options: dict[str, Any], prefix: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_axis, "LONG_AXIS", 1)
    compare(name, axes, options, "native", prefix, "sdpa")
