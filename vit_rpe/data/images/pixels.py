"""Any image to eight-bit pixels: one treatment for training, evaluation, prediction and plots.

1. More than ``max_pixels`` pixels: refused before anything is decoded.
2. The EXIF rotation is applied. Of several frames the first is used. Colour profiles are ignored.
3. 16-bit grey is divided by 257 and rounded (65535 becomes 255), never clipped; floating point grey on 0..1
   is multiplied by 255.
4. A palette is looked up; transparent pixels (alpha channel or transparent colour) are blended onto
   ``background``.
5. CMYK, YCbCr, HSV and 1-bit images become red, green, blue by Pillow's conversion.
6. Three channels from grey repeat it; one channel from colour is the luma 0.299 R + 0.587 G + 0.114 B.

C is the number of channels (1 or 3), h and w the size of the image as it comes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["opened", "to_mode", "with_channels"]

_DEEP_GREY = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_EXIF_ORIENTATION = 0x0112


@contextmanager
def opened(image: Image.Image | np.ndarray | str | Path | Any, *, max_pixels: int) -> Iterator[Image.Image]:
    """A Pillow image of a path, a binary file or an array (h, w) or (h, w, C) uint8; files are closed at the
    end.

    Raises ``ValueError`` for an image with more than ``max_pixels`` pixels, an array of another type or
    shape.
    """
    from PIL import Image

    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise ValueError(f"array {image.dtype} {image.shape}, expected uint8 (h, w) or (h, w, channels)")
        image = Image.fromarray(image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image)
    if isinstance(image, Image.Image):
        yield _not_too_large(image, max_pixels)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is ours
        file = Image.open(image)
    with file:
        yield _not_too_large(file, max_pixels)


def to_mode(image: Image.Image, *, channels: int, background: tuple[int, int, int]) -> Image.Image:
    """Eight-bit "L" (``channels=1``) or "RGB" (3) image with the treatment above; EXIF rotation included."""
    from PIL import ImageOps

    image.load()
    if image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode in _DEEP_GREY:
        image = _shallow_grey(image)
    elif image.mode == "F":
        image = _shallow_float(image)
    if image.has_transparency_data:
        image = _on_background(image, background)
    mode = "L" if channels == 1 else "RGB"
    if image.mode == mode:
        return image
    if image.mode in ("L", "1", "RGB"):
        return image.convert(mode)
    return image.convert("RGB").convert(mode)


def with_channels(pixels: np.ndarray, channels: int) -> np.ndarray:
    """(h, w, 1 or 3) uint8 to (h, w, ``channels``) without Pillow where nothing has to be mixed."""
    if pixels.shape[2] == channels:
        return pixels
    if pixels.shape[2] == 1:
        return np.repeat(pixels, channels, axis=2)
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).convert("L"))[:, :, None]


def _not_too_large(image: Image.Image, max_pixels: int) -> Image.Image:
    if image.width * image.height > max_pixels:
        raise ValueError(f"{image.width} x {image.height} pixels, at most {max_pixels} are allowed (max_pixels)")
    return image


def _shallow_grey(image: Image.Image) -> Image.Image:
    from PIL import Image

    values = np.asarray(image).astype(np.int64)
    if values.size and (values.min() < 0 or values.max() > 65535):
        raise ValueError(f"grey values {values.min()}..{values.max()}, expected 0..65535")
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def _shallow_float(image: Image.Image) -> Image.Image:
    from PIL import Image

    values = np.asarray(image)
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
        raise ValueError("floating point grey values outside 0..1")
    return Image.fromarray(np.rint(values * 255).astype(np.uint8))


def _on_background(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    from PIL import Image

    layer = image.convert("RGBA")
    canvas = Image.new("RGBA", layer.size, (*background, 255))
    return Image.alpha_composite(canvas, layer).convert("RGB")
