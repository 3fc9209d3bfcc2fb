"""Any image to eight-bit pixels: one treatment for training, evaluation, prediction and plots.

1. More than ``max_pixels`` pixels: refused before anything is decoded. What surrounds the pixels (profiles, comments,
   camera data of any size, damaged or not) is no reason to refuse an image, and is never written back.
2. The EXIF rotation is applied. Of several frames the first is used. Colour profiles are ignored.
3. 16-bit grey is divided by 257 and rounded (65535 becomes 255), never clipped; 32-bit integers are read as 16-bit, or
   as they are where none is above 255; floating point grey on 0..1 is multiplied by 255. TIFF files in which 0 is
   white are turned over at every depth.
4. A palette is looked up; transparent pixels (alpha channel or transparent colour, of any depth) are blended onto
   ``background``.
5. CMYK, YCbCr, HSV, LAB and 1-bit images become red, green, blue by Pillow's conversion.
6. Three channels from grey repeat it; one channel from colour is the luma 0.299 R + 0.587 G + 0.114 B.

C is the number of channels (1 or 3), h and w the size of the image as it comes.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_rpe.data.images.containers import bytes_palette, scaled_transparency, white_is_zero, without_metadata

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["opened", "to_mode", "with_channels"]

_DEEP_GREY = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_SIXTEEN_BITS = ("PNG", "PPM")  # formats without 32-bit grey: Pillow gives their 16-bit grey as "I" too
_ORIENTATION = 0x0112


@contextmanager
def opened(image: Image.Image | np.ndarray | str | Path | Any, *, max_pixels: int) -> Iterator[Image.Image]:
    """A Pillow image of a path, a binary file or an array (h, w) or (h, w, C) uint8; files are closed at the
    end.

    Raises ``ValueError`` for an image with more than ``max_pixels`` pixels, an array of another type or
    shape.
    """
    from PIL import Image

    if isinstance(image, np.ndarray):
        channels = image.shape[2] if image.ndim == 3 else 1
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or channels not in (1, 3, 4) or not image.size:
            raise ValueError(
                f"array {image.dtype} {image.shape}, expected uint8 (h, w) or (h, w, 1, 3 or 4 channels) of one pixel "
                "or more"
            )
    elif not isinstance(image, (Image.Image, str, Path)) and not hasattr(image, "seek"):
        raise ValueError(
            f"{type(image).__name__}, expected a path, a Pillow image, a binary file, or an array uint8 (h, w) or "
            "(h, w, channels)"
        )
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image)
    if isinstance(image, Image.Image):
        yield _not_too_large(image, max_pixels)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of metadata, and of sizes: the limit is ours
        file = _decoded(image, max_pixels)
    with file:
        yield file


def to_mode(image: Image.Image, *, channels: int, background: tuple[int, int, int]) -> Image.Image:
    """Eight-bit "L" (``channels=1``) or "RGB" (3) image with the treatment above; EXIF rotation included."""
    image.load()
    format, from_white = image.format, white_is_zero(image)
    image = _upright(image)
    if image.mode in _DEEP_GREY:
        of_32_bits = image.mode == "I" and format not in _SIXTEEN_BITS
        image = _shallow_grey(image, of_32_bits=of_32_bits, from_white=from_white)
    elif image.mode == "F":
        image = _shallow_float(image, from_white=from_white)
    elif image.mode == "La":
        image = image.convert("LA")
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


def _decoded(source: Any, max_pixels: int) -> Image.Image:
    """The image in a file, decoded; once more without its metadata if it cannot be read with them."""
    from PIL import Image

    def read(source: Any) -> Image.Image:
        file = Image.open(source)
        try:
            _not_too_large(file, max_pixels)
            scaled_transparency(file)
            file.load()
            bytes_palette(file)
        except BaseException:
            file.close()
            raise
        return file

    content = None
    if not isinstance(source, (str, Path)):
        source.seek(0)
        content = source.read()
    try:
        return read(source if content is None else io.BytesIO(content))
    except Exception:
        for stripped in without_metadata(Path(source).read_bytes() if content is None else content):
            with suppress(Exception):
                return read(stripped)
        raise  # what was wrong with the file as it is


def _upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF data say; what cannot be read there says nothing."""
    from PIL import Image

    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = image.getexif().get(_ORIENTATION, 1)
        except Exception:  # readers of foreign bytes raise almost anything
            value = 1
    turn = turns.get(value if isinstance(value, int) else 1)
    return image if turn is None else image.transpose(turn)


def _shallow_grey(image: Image.Image, *, of_32_bits: bool, from_white: bool) -> Image.Image:
    """Grey deeper than 8 bits to "L", or to "LA" where one of its values is transparent; ``from_white``: 0 is white."""
    from PIL import Image

    values = np.asarray(image).astype(np.int64)
    values = 65535 - values if from_white else values
    least, most = int(values.min()), int(values.max())
    if least < 0 or most > 65535:
        raise ValueError(f"grey values {least}..{most}, expected 0..65535")
    if 0 < most <= 255 and not of_32_bits:
        warnings.warn("a 16-bit grey image uses no value above 255: it is read as almost black", stacklevel=2)
    grey = values if most <= 255 and of_32_bits else (values + 128) // 257
    shallow = Image.fromarray(grey.astype(np.uint8))
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        shallow.putalpha(Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8)))
    return shallow


def _shallow_float(image: Image.Image, *, from_white: bool) -> Image.Image:
    from PIL import Image

    values = np.asarray(image)
    values = 1 - values if from_white else values
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
        raise ValueError("floating point grey values outside 0..1")
    return Image.fromarray(np.rint(values * 255).astype(np.uint8))


def _on_background(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    from PIL import Image

    layer = image.convert("RGBA")
    canvas = Image.new("RGBA", layer.size, (*background, 255))
    return Image.alpha_composite(canvas, layer).convert("RGB")
