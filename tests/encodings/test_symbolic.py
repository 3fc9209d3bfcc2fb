"""Grids whose sizes are symbols: every encoding exports with a dynamic height and width, and compiles in one piece."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from tests.encodings.build import HEAD_DIM, SCALE, build, names_and_axes, native_grid
from vit_rpe.attention import attend
from vit_rpe.encodings import PositionEncoding
from vit_rpe.position.geometry import TokenGrid

NAMES = [name for name, axes in names_and_axes() if axes == 2]
SAMPLE = ("bias", "rope_mixed", "t5")
every_name = pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.exhaustive) for name in NAMES]
)


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


@every_name
def test_export_with_dynamic_height_and_width(name: str) -> None:
    model = Attend(build(name, native_grid(2, prefix=1), dtype=torch.float32)).eval()
    sizes = {3: Dim("height", min=2, max=64), 4: Dim("width", min=2, max=64)}
    program = export(model, (feature_map(4, 5),), dynamic_shapes=(sizes,), strict=False)
    for height, width in ((4, 5), (2, 3), (7, 6)):
        x = feature_map(height, width)
        torch.testing.assert_close(program.module()(x), model(x), atol=1e-5, rtol=1e-4)


@every_name
def test_compiles_without_a_break_for_any_size(name: str) -> None:
    torch._dynamo.reset()
    model = Attend(build(name, native_grid(2, prefix=1), dtype=torch.float32)).eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="eager")
    for height, width in ((4, 5), (2, 3), (7, 6)):
        x = feature_map(height, width)
        torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)
