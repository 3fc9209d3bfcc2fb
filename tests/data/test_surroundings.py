"""Damaged segments and chunks around the pixels: the pixels of the clean file, turned where a rotation can be read."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from .image_files import speckle
from .test_image_kinds import chunk, read

TURNED = b"Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"


def segment(marker: int, data: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data


JPEG = {
    "ICC, 12 bytes": segment(0xE2, b"ICC_PROFILE\0"),
    "ICC, 13 bytes": segment(0xE2, b"ICC_PROFILE\0\1"),
    "Adobe, 5 bytes": segment(0xEE, b"Adobe"),
    "Adobe, 11 bytes": segment(0xEE, b"Adobe\0\x64\0\0\0\0"),
    "JFIF, 6 bytes": segment(0xE0, b"JFIF\0\1"),
    "JFIF, 4 bytes": segment(0xE0, b"JFIF"),
    "APP13 ends at a tag": segment(0xED, b"Photoshop 3.0\0" + b"8BIM\x07\xdb"),
    "APP13 ends in a tag": segment(0xED, b"Photoshop 3.0\0" + b"8BIM\x03\xed\0\0\0\0\0\x10ab"),
    "camera data": segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0\xff\xff"),
    "comment": segment(0xFE, b"\xff\xfe\x80"),
    "several": segment(0xE2, b"ICC_PROFILE\0") + b"\xff\xff" + segment(0xEE, b"Adobe") + segment(0xE0, b"JFIF\0"),
}
PNG = {
    "profile": chunk(b"iCCP", b"k\0\0nothing"),
    "text": chunk(b"zTXt", b"k\0\0" + zlib.compress(b"a" * 3_000_000)),
    "checksum": chunk(b"tEXt", b"k\0v")[:-1] + b"!",
}


def jpeg(mode: str, pixels: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "JPEG", quality=95, **options)
    return file.getvalue()


@pytest.mark.parametrize("as_path", [False, True])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", JPEG)
def test_damaged_segments_of_a_jpeg(name: str, turned: bool, mode: str, as_path: bool, tmp_path: Path) -> None:
    """Pillow 5086; CMYK pixels are inverted only where the Adobe segment, which is whole, was kept."""
    clean = jpeg(mode, speckle(8, 16), exif=TURNED if turned else b"")
    height, width = (16, 8) if turned else (8, 16)
    damaged: bytes | str = clean[:2] + JPEG[name] + clean[2:]
    if turned and name == "camera data":  # two of one kind: which of them counts is the decoder's affair
        damaged, height, width = jpeg(mode, speckle(8, 16)), 8, 16
        clean, damaged = damaged, damaged[:2] + JPEG[name] + damaged[2:]
    expected = read(clean, height, width)
    if as_path:
        (tmp_path / "x.jpg").write_bytes(damaged)
        damaged = str(tmp_path / "x.jpg")
    np.testing.assert_array_equal(read(damaged, height, width), expected)


def test_the_segment_that_tells_colours_is_kept() -> None:
    """Red, green and blue stored as they are: Adobe's transform 0, without which they would be read as YCbCr."""
    content = jpeg("RGB", speckle(8, 16), keep_rgb=True)
    assert b"Adobe" in content
    damaged = content[:2] + JPEG["ICC, 12 bytes"] + content[2:]
    np.testing.assert_array_equal(read(damaged, 8, 16), read(content, 8, 16))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", PNG)
def test_damaged_chunks_of_a_png_leave_its_rotation(name: str, turned: bool) -> None:
    file = io.BytesIO()
    Image.fromarray(speckle(4, 7)).save(file, "PNG", exif=TURNED if turned else b"")
    clean, (height, width) = file.getvalue(), (7, 4) if turned else (4, 7)
    damaged = clean[:33] + PNG[name] + clean[33:]
    np.testing.assert_array_equal(read(damaged, height, width), read(clean, height, width))


@pytest.mark.parametrize("kind", ["WEBP", "TIFF"])
def test_damaged_profiles_and_camera_data_of_other_formats(kind: str) -> None:
    plain, odd = io.BytesIO(), io.BytesIO()
    image = Image.fromarray(speckle(4, 7))
    options = {"lossless": True} if kind == "WEBP" else {}
    image.save(plain, kind, **options)
    image.save(odd, kind, icc_profile=b"no", **options, **({"exif": b"Exif\0\0no"} if kind == "WEBP" else {}))
    np.testing.assert_array_equal(read(odd.getvalue(), 4, 7), read(plain.getvalue(), 4, 7))


@pytest.mark.parametrize("end", [2, 4, 30, 100])
def test_a_jpeg_cut_before_its_pixels_stays_unreadable(end: int) -> None:
    with pytest.raises(OSError):
        read(jpeg("RGB", speckle(8, 16))[:end], 8, 16)
