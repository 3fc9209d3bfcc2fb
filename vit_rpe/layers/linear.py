"""What is known of a linear layer or a convolution without reading its weight: something else may stand in its place.

Adapters, quantised and parametrised layers, or a module of somebody's own: they are called. What they do not say of
themselves is asked of what they hold, or found by a call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from vit_rpe.precision import placement_of


def width_of(layer: nn.Module, inputs: int) -> int:
    """How many features a layer gives for so many: as it says, else found by calling it on one row of zeros."""
    told: Any = getattr(layer, "out_features", None)
    if isinstance(told, int):
        return told
    place = placement_of(layer)
    with torch.no_grad():
        return int(layer(torch.zeros(1, inputs, device=place.device, dtype=place.dtype)).shape[-1])


class Steps(NamedTuple):
    """How a convolution or a pooling goes over a map, one entry per axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]


def steps_of(layer: nn.Module) -> Steps:
    """How a convolution or a pooling goes over a map, or what it stands inside of: that of its parts which is no 1 x 1.

    Raises:
        ValueError: several parts go over the map, each otherwise, or none says how.
    """
    told = [_steps(part) for part in layer.modules() if hasattr(part, "kernel_size") and hasattr(part, "stride")]
    found = set(told) if len(set(told)) == 1 else {each for each in told if max(*each.kernel, *each.stride) > 1}
    if len(found) != 1:
        raise ValueError(f"which steps this layer takes over a map is not known: {layer}")
    return found.pop()


def _steps(part: Any) -> Steps:
    pairs = (part.kernel_size, part.stride, part.padding)
    kernel, stride, padding = ((each, each) if isinstance(each, int) else tuple(each) for each in pairs)
    return Steps(kernel, stride, padding)
