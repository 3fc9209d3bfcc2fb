"""What one call sees where the image is cut into windows.

Legend: B samples, W windows of one image, N tokens of a window.
"""

from __future__ import annotations

from itertools import product

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vit_rpe.models.families._interface import Sight
from vit_rpe.position.geometry import TokenGrid

Size = tuple[int, ...]


def cut(image: Size, window: Size, *, shift: Size | None = None, pads_first: bool = False) -> Sight:
    """Windows side by side in raster order, the last ones padded; ``shift`` rolls the image before.

    Args:
        pads_first: the padded image is rolled, not the image.
    """
    counts = [-(-side // part) for side, part in zip(image, window, strict=True)]
    origins = product(*(range(0, count * part, part) for count, part in zip(counts, window, strict=True)))
    grid = TokenGrid(window)
    padded = tuple(count * part for count, part in zip(counts, window, strict=True)) if pads_first else None
    shift = shift if shift is not None and any(shift) else None
    return Sight(image, grid, grid, tuple(origins), shift=shift, rolled=padded)


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


def padded_size(image: Size, window: Size) -> Size:
    """The smallest whole number of windows that covers an image."""
    return tuple(-(-side // part) * part for side, part in zip(image, window, strict=True))


def partition(x: Tensor, window: Size, shift: Size = (0, 0)) -> Tensor:
    """Images (B, h, w, C) padded, rolled and cut into windows (B W, N, C)."""
    image = tuple(x.shape[1:3])
    height, width = padded_size(image, window)
    x = F.pad(x, (0, 0, 0, width - image[1], 0, height - image[0]))
    x = torch.roll(x, (-shift[0], -shift[1]), dims=(1, 2))
    return rearrange(x, "b (y h) (x w) c -> (b y x) (h w) c", h=window[0], w=window[1])


def unpartition(windows: Tensor, image: Size, window: Size, shift: Size = (0, 0)) -> Tensor:
    """Windows (B W, N, C) put together, rolled back and cut: (B, h, w, C)."""
    height, width = padded_size(image, window)
    counts = {"y": height // window[0], "x": width // window[1], "h": window[0], "w": window[1]}
    x = rearrange(windows, "(b y x) (h w) c -> b (y h) (x w) c", **counts)
    return torch.roll(x, shift, dims=(1, 2))[:, : image[0], : image[1]]


def neighbours(image: Size, window: Size, shift: Size, device: torch.device) -> Tensor | None:
    """Which tokens of a window of the rolled, padded image were neighbours before, bool (W, N, N); None: all."""
    if not any(shift):
        return None
    part = torch.zeros(padded_size(image, window), dtype=torch.int64, device=device)
    for axis, (side, of, by) in enumerate(zip(part.shape, window, shift, strict=True)):
        at = torch.arange(side, device=device)
        region = (at >= side - of).long() + (at >= side - by).long() if by else torch.zeros_like(at)
        part = part * 3 + region.view(-1, *(1,) * (part.ndim - 1 - axis))
    regions = partition(part[None, :, :, None], window)[..., 0]
    return regions[:, :, None] == regions[:, None]
