"""Rotary encodings on grids larger than the one they were trained on.

sigma_a = max(1, size_a / native_a) is how much larger the lattice in hand is along axis a. By ``scaling`` then

    ``linear``:  coordinates are divided by sigma_a
    ``ntk``:     the base grows by sigma_a^(M / (M - 1)): the fastest of M speeds stays, the slowest is divided by
                 sigma_a
    ``yarn``:    a vector f is divided by sigma_a along axis a, the more so the less it turns on the native grid, and
                 logits grow by (0.1 ln sigma + 1)^2, sigma the geometric mean of the axes

YaRN: Efficient Context Window Extension of Large Language Models, arXiv 2309.00071, eq. 20-22. With r = native_a
|f_a| / 2 pi turns and gamma = (r - 1/4) / (1 - 1/4), cut to 0 ... 1, yarn has f'_a = f_a (gamma + (1 - gamma) /
sigma_a). The paper's limits, 1 and 32 turns, are for text: on 14 patches they would divide everything.

Legend: n axes, H heads, F pairs of channels, M pairs an axis has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vit_rpe.checks import check_choice
from vit_rpe.encodings._rotary import Rotation
from vit_rpe.position.geometry import Device, are_constants

SCALINGS = ("linear", "ntk", "yarn")
SLOWEST, FASTEST = 0.25, 1.0
"""Turns on the native grid up to which yarn divides in full, and from which it leaves a vector as it is."""


def check_scaling(scaling: str | None, native: tuple[int, ...] | None) -> None:
    """Raise ValueError unless ``scaling`` is known, and ``native`` comes with one."""
    if scaling is not None:
        check_choice("scaling", scaling, SCALINGS)
    elif native is not None:
        raise ValueError(f"native={native!r} is the size that scaling compares with, and there is no scaling")


def stretch(lattice: Sequence[Any], native: Sequence[int], device: Device = None) -> Tensor | None:
    """sigma of every axis, float32 (n,); None where the lattice is known to be no larger."""
    if are_constants(*lattice) and all(size <= own for size, own in zip(lattice, native, strict=True)):
        return None
    sigma = [torch.sym_max(1.0, size / own) for size, own in zip(lattice, native, strict=True)]
    return torch.stack([torch.scalar_tensor(factor, device=device, dtype=torch.float32) for factor in sigma])


def scaled_vectors(vectors: Tensor, scaling: str, sigma: Tensor, native: Sequence[int]) -> Tensor:
    """The vectors f (n, H or 1, F) for a lattice sigma (n,) times as large.

    ``ntk`` is for the axial layout, where axis a has the pairs a F/n ... (a + 1) F/n - 1.
    """
    factor = sigma[:, None, None].to(vectors.dtype)
    if scaling == "linear":
        return vectors / factor
    if scaling == "ntk":
        count = vectors.shape[-1] // len(native)
        return vectors * factor ** -(torch.arange(count, device=vectors.device).repeat(len(native)) / (count - 1))
    size = torch.tensor(native, device=vectors.device, dtype=vectors.dtype)[:, None, None]
    turns = size * vectors.abs() / (2 * math.pi)
    kept = ((turns - SLOWEST) / (FASTEST - SLOWEST)).clamp(0, 1)
    return vectors * (kept + (1 - kept) / factor)


def warmer(turned: Rotation, sigma: Tensor) -> Rotation:
    """A rotation that also multiplies by 0.1 ln sigma + 1, so that logits are multiplied by its square (yarn)."""
    factor = 0.1 * sigma.log().mean() + 1
    return turned[0] * factor, turned[1] * factor
