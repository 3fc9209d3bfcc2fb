"""Grids whose sizes are symbols: every encoding exports with a dynamic height and width, and compiles in one piece."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from tests.encodings.build import HEAD_DIM, SCALE, build, names_and_axes, native_grid, refuses, variants
from vit_rpe.attention import attend
from vit_rpe.encodings import PositionEncoding
from vit_rpe.position.geometry import TokenGrid

GRID = native_grid(2, prefix=1)
SAMPLE = ("bias", "rope_mixed", "t5")


def cases() -> list[Any]:
    """Every encoding with every option set of its oracle file; by default some encodings and what depends on sizes."""
    found = []
    for name in [name for name, axes in names_and_axes() if axes == 2]:
        for number, options in enumerate(variants(name)):
            if refuses(name, options, GRID):
                continue
            sampled = (number == 0 and name in SAMPLE) or options.get("scaling") in ("ntk", "yarn")
            marks = () if sampled else (pytest.mark.exhaustive,)
            found.append(pytest.param(name, options, id=f"{name}-{number}", marks=marks))
    return found


every_case = pytest.mark.parametrize(("name", "options"), cases())


class Attend(nn.Module):
    """Self-attention over a feature map (B, H, D, height, width) with one class token."""

    def __init__(self, encoding: PositionEncoding) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, x: Tensor) -> Tensor:
        grid = TokenGrid((x.shape[3], x.shape[4]), 1)
        tokens = x.flatten(3).mT
        tokens = torch.cat([tokens.mean(2, keepdim=True), tokens], dim=2)
        return attend(tokens, tokens, tokens, self.encoding(grid, grid, x.device), scale=SCALE)


def feature_map(height: int, width: int) -> Tensor:
    return torch.randn(2, 3, HEAD_DIM, height, width)


@every_case
def test_export_with_dynamic_height_and_width(name: str, options: dict[str, Any]) -> None:
    model = Attend(build(name, GRID, options, dtype=torch.float32)).eval()
    sizes = {3: Dim("height", min=2, max=64), 4: Dim("width", min=2, max=64)}
    program = export(model, (feature_map(4, 5),), dynamic_shapes=(sizes,), strict=False)
    for height, width in ((4, 5), (2, 3), (7, 6)):
        x = feature_map(height, width)
        torch.testing.assert_close(program.module()(x), model(x), atol=1e-5, rtol=1e-4)


@every_case
def test_compiles_without_a_break_for_any_size(name: str, options: dict[str, Any]) -> None:
    torch._dynamo.reset()
    model = Attend(build(name, GRID, options, dtype=torch.float32)).eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="eager")
    for height, width in ((4, 5), (2, 3), (7, 6)):
        x = feature_map(height, width)
        torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)
