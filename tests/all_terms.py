"""A bundle with every part filled in at random, for tests of what terms mean."""

from __future__ import annotations

import torch

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.masks import GeometricMask
from vit_rpe.position.terms import AxisBias, Features, PositionTerms, RelativeVectors

HEADS, WIDTH = 2, 8


def everything(grid: TokenGrid) -> PositionTerms:
    """Terms with every part filled in."""
    n, patches = grid.num_tokens, grid.size
    angles = torch.randn(HEADS, n, WIDTH // 2)

    def vectors(axis: int | None) -> RelativeVectors:
        shape = (n, n) if axis is None else (patches[axis], patches[axis])
        return RelativeVectors(torch.randn(HEADS, 7, WIDTH), torch.randint(-1, 7, shape), axis)

    visible = torch.rand(HEADS, n, n) > 0.2
    visible[:, :, 0] = True
    return PositionTerms(
        rotate_q=(angles.cos(), angles.sin()),
        rotate_k=(angles.cos(), angles.sin()),
        bias=torch.randn(HEADS, n, n),
        axis_bias=(AxisBias(torch.randn(HEADS, patches[1], patches[1]), 1),),
        visible=visible,
        on_query=(vectors(None), vectors(0)),
        on_key=(vectors(1),),
        on_value=(vectors(0), vectors(None)),
        scale=0.7,
        grids=(grid, grid),
        offset_bias=(torch.randn(HEADS, *(2 * size - 1 for size in patches)),),
        prefix_bias=torch.randn(HEADS, 3),
        offset_visible=(torch.rand(HEADS, *(2 * size - 1 for size in patches)) > 0.2),
        geometric_mask=GeometricMask(window=(0, 1)),
        features=(
            Features(torch.randn(1, HEADS, n, 3), torch.randn(1, 1, n, 3)),
            Features(torch.randn(1, 1, n, 5), torch.randn(1, HEADS, n, 5)),
        ),
    )
