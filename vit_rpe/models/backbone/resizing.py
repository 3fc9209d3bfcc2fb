"""Another native grid for all encodings of a model of ours."""

from __future__ import annotations

from typing import Any

from torch import nn

from vit_rpe.layers import RelativeMultiheadAttention
from vit_rpe.position.geometry import TokenGrid


def resize_positions(model: Any, grid: TokenGrid) -> None:
    """Resample the encoding that all layers share, and those of the layers; tied parameters stay tied.

    What refuses is asked before by :func:`vit_rpe.encodings.check_resizable`.
    """
    tied: dict[int, nn.Parameter] = {}
    if model.rpe is not None:
        model.rpe = model.rpe.resized(grid, tied)
    for layer in model.modules():
        if isinstance(layer, RelativeMultiheadAttention):
            layer.set_grid(grid, tied)
