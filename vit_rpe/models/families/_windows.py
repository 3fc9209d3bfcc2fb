"""What one call sees where the image is cut into windows.

Legend: B samples, W windows of one image, N tokens of a window.
"""

from __future__ import annotations

from itertools import product

from torch import Tensor

from vit_rpe.models.families._interface import Sight
from vit_rpe.position.geometry import TokenGrid

Size = tuple[int, ...]


def cut(image: Size, window: Size, *, shift: Size | None = None) -> Sight:
    """Windows side by side in raster order, the last ones padded; ``shift`` rolls the image before."""
    counts = [-(-side // part) for side, part in zip(image, window, strict=True)]
    origins = product(*(range(0, count * part, part) for count, part in zip(counts, window, strict=True)))
    grid = TokenGrid(window)
    return Sight(image, grid, grid, tuple(origins), shift=shift if shift is not None and any(shift) else None)


def dilated(image: Size, parts: Size) -> Sight:
    """Grid attention: ``parts`` tokens a call, spread evenly over the whole image."""
    spread = tuple(side // part for side, part in zip(image, parts, strict=True))
    grid = TokenGrid(parts)
    return Sight(image, grid, grid, tuple(product(*map(range, spread))), spread=spread)


def shift_mask(mask: Tensor | None, rows: int) -> Tensor | None:
    """A mask (W, N, N), 0 where a query may see a key and negative where not, as ``visible`` (B W, 1, N, N).

    The families add -100 instead of hiding; the difference is a weight of e^-100 of the largest.
    """
    if mask is None:
        return None
    visible = (mask == 0)[None].expand(rows // mask.shape[0], -1, -1, -1)
    return visible.reshape(rows, 1, *mask.shape[1:])
