"""Tables over offsets at another resolution: bicubic, linear, or along a geometric progression.

Bicubic and linear stretch all offsets alike: the grid is finer, the picture the same; linear is what Segment Anything
does. Geometric keeps what is near: the value of
one token's distance stays the value of one token's distance, and the gaps between the source's offsets grow by a
constant ratio outwards until its last offset is the target's last (the way BEiT, arXiv 2106.08254, fine-tunes at a
higher resolution). In between it is linear, as in timm: BEiT's cubic spline overshoots between far offsets. On a
smaller grid it is the table's centre.

Legend: M and T largest offset of source and target.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

RESAMPLINGS = ("bicubic", "linear", "geometric")


def resample(
    table: Tensor, dims: Sequence[int], lengths: Sequence[int], *, method: str = "bicubic", antialias: bool = False
) -> Tensor:
    """Resample a table along some dimensions, one after the other; the others (heads, width) are untouched.

    The centre (offset 0) of an odd length stays the centre of an odd length, bit for bit; a constant stays constant;
    equal lengths return the table itself.

    Args:
        table: any shape; dims: dimensions to resample; lengths: their new lengths.
        method: one of :data:`RESAMPLINGS`; ``"geometric"`` takes odd lengths only, those of offsets.
        antialias: for bicubic, smooth before shrinking; then only a constant stays as it is.
    """
    for dim, length in zip(dims, lengths, strict=True):
        if table.shape[dim] == length:
            continue
        moved = table.movedim(dim, -1).to(torch.promote_types(table.dtype, torch.float32))
        if method == "geometric":
            weights = geometric_weights(moved.shape[-1] // 2, length // 2).to(moved)
            moved = moved @ weights.mT
        else:
            before = moved.reshape(1, -1, 1, moved.shape[-1])
            if method == "linear":
                flat = F.interpolate(before[:, :, 0], size=length, mode="linear", align_corners=False)[:, :, None]
            else:
                flat = F.interpolate(before, size=(1, length), mode="bicubic", align_corners=False, antialias=antialias)
            if not antialias and before.shape[-1] % 2 == length % 2 == 1:
                # where the places of the two grids are computed, rounding moves the centre by up to 1e-5
                middle, half = before[..., before.shape[-1] // 2, None], length // 2
                flat = torch.cat([flat[..., :half], middle, flat[..., half + 1 :]], dim=-1)
            moved = flat.reshape(*moved.shape[:-1], length)
        table = moved.movedim(-1, dim).to(table.dtype)
    return table.contiguous()


def geometric_weights(source: int, target: int) -> Tensor:
    """How the values at offsets -T..T mix those at -M..M: float64 (2 T + 1, 2 M + 1), rows sum to 1.

    A row is exactly one-hot where an offset of the source lies.

    Args:
        source: M; target: T.
    """
    outwards = geometric_positions(source, target)
    knots = torch.tensor([-x for x in reversed(outwards)] + [0.0] + outwards, dtype=torch.float64, device="cpu")
    identity = torch.eye(len(knots), dtype=torch.float64, device="cpu")
    if source == 0:
        return identity.expand(2 * target + 1, 1)
    asked = torch.arange(-target, target + 1, dtype=torch.float64, device="cpu").clamp(knots[0], knots[-1])
    before = (torch.searchsorted(knots, asked, right=True) - 1).clamp(0, len(knots) - 2)
    share = ((asked - knots[before]) / (knots[before + 1] - knots[before]))[:, None]
    return (1 - share) * identity[before] + share * identity[before + 1]


def geometric_positions(source: int, target: int) -> list[float]:
    """Where offsets 1..M of the source lie among the target's: 1, 1 + r, 1 + r + r^2, ..., the last at T.

    r is 1 where T <= M; a single offset stays at 1.
    """
    low, high = 1.0, float(max(target, 1))
    for _ in range(60 if target > source > 1 else 0):  # halves the interval down to the spacing of float64
        middle = (low + high) / 2
        if sum(middle**power for power in range(source)) > target:
            high = middle
        else:
            low = middle
    return [sum(low**power for power in range(count)) for count in range(1, source + 1)]
