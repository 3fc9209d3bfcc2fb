"""What Pillow makes of some PNG, JPEG and TIFF files, put right: metadata in the way of pixels, colours at another
depth.

Chunks and their meaning: the PNG specification (ISO/IEC 15948), section 11; segments: ITU-T T.81, annex B, and T.871
and T.872 for those that tell how colours are stored; tags: TIFF 6.0, section 5.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["bytes_palette", "scaled_transparency", "white_is_zero", "without_metadata"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_MAP = 320
_PHOTOMETRIC = 262
_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_CAMERA = b"Exif\0\0"
_COLOURS = ((0xE0, b"JFIF\0", 14), (0xEE, b"Adobe", 12))  # marker, first bytes, least length: what decoders ask for
_SCAN, _COMMENT, _FILL = 0xDA, 0xFE, 0xFF


def scaled_transparency(file: Image.Image) -> None:
    """Bring the transparent colour of an opened, not yet decoded image to the depth its pixels will have.

    Pillow spreads 2- and 4-bit grey over 0..255 and cuts 16-bit colours to their high bytes, but keeps the transparent
    colour as the file says it.
    """
    value = file.info.get("transparency")
    tile = getattr(file, "tile", None)
    raw = str(tile[0][3]) if tile else ""  # a name, or a tuple of it and more
    if isinstance(value, int):
        for name, factor in (("L;2", 85), ("L;4", 17)):
            if name in raw:
                file.info["transparency"] = value * factor
    elif isinstance(value, tuple) and "RGB;16" in raw:
        file.info["transparency"] = tuple(part >> 8 for part in value)


def bytes_palette(file: Image.Image) -> None:
    """Mend the colours of a TIFF image whose palette is written in 0..255 instead of 0..65535, which would be black."""
    if file.format != "TIFF" or file.mode != "P":
        return
    values = file.tag_v2.get(_COLOUR_MAP, ())  # type: ignore[attr-defined]
    if values and max(values) <= 255:
        count = len(values) // 3  # all reds, then all greens, then all blues
        file.putpalette(bytes(values[part * count + index] for index in range(count) for part in range(3)))


def white_is_zero(file: Image.Image) -> bool:
    """Whether the grey of an image, as Pillow gives it, grows from white to black: it turns 8 bits and fewer only."""
    tags = getattr(file, "tag_v2", {}) if file.format == "TIFF" else {}
    return tags.get(_PHOTOMETRIC) == 0 and (file.mode == "F" or file.mode.startswith("I"))


def without_metadata(content: bytes) -> Iterator[io.BytesIO]:
    """A PNG or JPEG file of what makes its pixels: once with the camera data, which tell its rotation, and once
    without; nothing for any other file."""
    if content.startswith(_SIGNATURE):
        strip = _chunks
    elif content.startswith(b"\xff\xd8\xff"):
        strip = _segments
    else:
        return
    for camera in (True, False):
        yield io.BytesIO(strip(content, camera=camera))


def _chunks(content: bytes, *, camera: bool) -> bytes:
    kept, at = [_SIGNATURE], len(_SIGNATURE)
    while at + 8 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        kind = content[at + 4 : at + 8]
        if kind in _PIXELS or (camera and kind == b"eXIf"):
            kept.append(content[at : at + 12 + length])
        at += 12 + length
    return b"".join(kept)


def _segments(content: bytes, *, camera: bool) -> bytes:
    kept, at = [content[:2]], 2
    while at + 4 <= len(content) and content[at] == _FILL:
        marker, (length,) = content[at + 1], struct.unpack_from(">H", content, at + 2)
        if marker == _FILL:  # any number of them may come before a marker
            at += 1
            continue
        if marker == _SCAN:
            break
        data = content[at + 4 : at + 2 + length]
        known = any(marker == own and data.startswith(start) and len(data) >= least for own, start, least in _COLOURS)
        known = known or (camera and marker == 0xE1 and data.startswith(_CAMERA))
        if known or not (0xE0 <= marker <= 0xEF or marker == _COMMENT):
            kept.append(content[at : at + 2 + length])
        at += 2 + length
    return b"".join([*kept, content[at:]])
