"""The frequencies of a rotation, read off its cosines and sines.

Legend: H heads, N tokens with prefix, D head width, n axes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz.recording.maps import check_grids


def rotation_frequencies(rotation: tuple[Tensor, Tensor], grid: TokenGrid) -> Tensor:
    """Angle by which each channel pair turns from one token to the next along each axis.

    Args:
        rotation: (cos, sin), each (N, D/2) or (H, N, D/2).
        grid: of the N tokens.

    Returns:
        (H or 1, n, D/2) in radians per step, in (-pi, pi]; 0 along an axis of one token.

    Raises:
        ValueError: no two tensors alike, or of other tokens than the grid's.
    """
    check_grids("rotation_frequencies", grid, grid)
    shapes = [tuple(getattr(part, "shape", ())) for part in rotation] if isinstance(rotation, (tuple, list)) else []
    if len(shapes) != 2 or shapes[0] != shapes[1] or len(shapes[0]) not in (2, 3) or shapes[0][-2] != grid.num_tokens:
        raise ValueError(
            f"rotation must be (cos, sin), each (N, D/2) or (H, N, D/2) with N = {grid.num_tokens} as the grid, got "
            f"{shapes or rotation!r}"
        )
    cos, sin = (part if part.ndim == 3 else part[None] for part in rotation)
    angles = torch.atan2(sin, cos)[:, grid.num_prefix :].unflatten(1, grid.size)
    steps = []
    for axis, size in enumerate(grid.size):
        first = angles.movedim(axis + 1, 1).reshape(len(angles), size, -1, angles.shape[-1])[:, :, 0]
        step = first[:, 1] - first[:, 0] if size > 1 else torch.zeros_like(first[:, 0])
        steps.append(torch.atan2(step.sin(), step.cos()))
    return torch.stack(steps, dim=1)
