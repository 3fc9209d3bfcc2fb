"""Kinds of image files, depth by depth: the right pixel, whatever surrounds it, or a refusal that names the file."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from vit_rpe.data import BadImageError, Preprocessing
from vit_rpe.data.images.preprocessing import centre_box

BACKGROUND = (10, 20, 30)


def read(content, height, width, channels=3):
    statistics = (0.5,) * channels
    treatment = Preprocessing(
        (height, width), channels, statistics, statistics, interpolation="nearest", background=BACKGROUND
    )
    return treatment.pixels(io.BytesIO(content) if isinstance(content, bytes) else content)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(depth: int, colour: int, row: bytes, width: int, before: bytes = b"", after: bytes = b"") -> bytes:
    """One row of a PNG file by the specification; colour: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, depth, colour, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" + row))
    return b"\x89PNG\r\n\x1a\n" + header + before + pixels + after + chunk(b"IEND", b"")


@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize(
    ("depth", "values", "seen"),
    [
        (1, (1, 0), (255, 0)),
        (2, (2, 1), (170, 85)),
        (4, (9, 3), (153, 51)),
        (8, (100, 200), (100, 200)),
        (16, (0x1234, 0x8000), (18, 128)),
    ],
)
def test_grey_of_every_depth_with_a_transparent_value(depth, values, seen, transparent):
    row = (
        struct.pack(">HH", *values)
        if depth == 16
        else bytes(values)
        if depth == 8
        else bytes([values[0] << (8 - depth) | values[1] << (8 - 2 * depth)])
    )
    content = png(depth, 0, row, 2, chunk(b"tRNS", struct.pack(">H", values[0])) if transparent else b"")
    expected = [list(BACKGROUND) if transparent else [seen[0]] * 3, [seen[1]] * 3]
    assert read(content, 1, 2)[0].tolist() == expected


@pytest.mark.parametrize("depth", [8, 16])
def test_colour_of_either_depth_with_a_transparent_value(depth):
    colours = [(1, 2, 3), (200, 100, 50)]
    scaled = [[value * (257 if depth == 16 else 1) for value in colour] for colour in colours]
    row = struct.pack(f">6{'H' if depth == 16 else 'B'}", *scaled[0], *scaled[1])
    content = png(depth, 2, row, 2, chunk(b"tRNS", struct.pack(">3H", *scaled[0])))
    assert read(content, 1, 2)[0].tolist() == [list(BACKGROUND), list(colours[1])]


@pytest.mark.parametrize(
    ("colour", "row", "expected"),
    [
        (4, struct.pack(">4H", 0x80FF, 0xFFFF, 0x8000, 0), [[128] * 3, list(BACKGROUND)]),
        (6, struct.pack(">8H", 0x80FF, 0, 0, 0xFFFF, 0x8000, 0, 0, 0), [[128, 0, 0], list(BACKGROUND)]),
    ],
)
def test_alpha_of_sixteen_bits(colour, row, expected):
    assert read(png(16, colour, row, 2), 1, 2)[0].tolist() == expected


def test_a_palette_with_a_transparent_colour():
    palette = chunk(b"PLTE", bytes([1, 2, 3, 200, 100, 50])) + chunk(b"tRNS", bytes([0, 255]))
    assert read(png(1, 3, bytes([0b01000000]), 2, palette), 1, 2)[0].tolist() == [list(BACKGROUND), [200, 100, 50]]


LARGE = zlib.compress(b"a" * 3_000_000)
SURROUNDINGS = {
    "text": (chunk(b"zTXt", b"k\0\0" + LARGE), b""),
    "international text": (chunk(b"iTXt", b"k\0\1\0\0\0" + LARGE), b""),
    "text behind the pixels": (b"", chunk(b"zTXt", b"k\0\0" + LARGE)),
    "colour profile": (chunk(b"iCCP", b"k\0\0" + LARGE), b""),
    "much text": (b"".join(chunk(b"zTXt", b"k%d\0\0" % n + zlib.compress(b"a" * 999_999)) for n in range(70)), b""),
    "damaged profile": (chunk(b"iCCP", b"k\0\0nothing"), b""),
    "damaged camera data": (chunk(b"eXIf", b"nothing"), b""),
    "damaged small chunks": (
        chunk(b"gAMA", b"a") + chunk(b"cHRM", b"x") + chunk(b"pHYs", b"") + chunk(b"sRGB", b""),
        b"",
    ),
    "damaged checksum of text": (chunk(b"tEXt", b"k\0v")[:-1] + b"!", b""),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
@pytest.mark.parametrize("as_path", [False, True])
def test_what_surrounds_the_pixels_of_a_png_is_no_reason_to_refuse(tmp_path, name, as_path):
    content = png(8, 0, b"\x64\xc8", 2, *SURROUNDINGS[name])
    if as_path:
        (tmp_path / "x.png").write_bytes(content)
        content = str(tmp_path / "x.png")
    assert read(content, 1, 2, 1)[0, :, 0].tolist() == [100, 200]


def tiff_data(tags: list[tuple[int, int, int, bytes]], *, first: int = 8) -> bytes:
    """A directory of (tag, type, count, data), little endian."""
    start, body, entries = first + 2 + 12 * len(tags) + 4, b"", b""
    for tag, kind, count, data in sorted(tags):
        head = struct.pack("<HHI", tag, kind, count)
        entries += head + (data.ljust(4, b"\0") if len(data) <= 4 else struct.pack("<I", start + len(body)))
        body += data if len(data) > 4 else b""
    return b"II*\0" + struct.pack("<I", first) + struct.pack("<H", len(tags)) + entries + b"\0" * 4 + body


TURNED = (0x0112, 3, 1, struct.pack("<H", 6))
CAMERA_DATA = {
    "nothing else": [],
    "resolution as text": [(0x011A, 2, 6, b"72dpi\0")],
    "software as a float": [(0x0131, 11, 1, struct.pack("<f", 1.5))],
    "resolution as a double": [(0x011A, 12, 1, struct.pack("<d", 72.0))],
    "unknown type": [(0x010F, 99, 1, b"abcd")],
    "negative number": [(0x010F, 9, 1, struct.pack("<i", -5))],
    "division by zero": [(0x011A, 5, 1, struct.pack("<II", 72, 0))],
    "text beyond the end": [(0x010F, 2, 100_000, b"\0\0\xff\0")],
}


def half_white() -> np.ndarray:
    pixels = np.zeros((16, 32), dtype=np.uint8)
    pixels[:8, :16] = 255
    return pixels


@pytest.mark.parametrize("name", CAMERA_DATA)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_an_image_is_turned_whatever_else_its_camera_says(name, kind):
    file = io.BytesIO()
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95}}.get(kind, {})
    Image.fromarray(half_white()).convert("RGB").save(
        file, kind, exif=b"Exif\0\0" + tiff_data([TURNED, *CAMERA_DATA[name]]), **options
    )
    np.testing.assert_allclose(read(file.getvalue(), 4, 2, 1)[:, :, 0], [[0, 255], [0, 255], [0, 0], [0, 0]], atol=2)


@pytest.mark.parametrize("name", CAMERA_DATA)
def test_a_turned_tiff_file(name):
    tags = [TURNED, *CAMERA_DATA[name], *((tag, 3, 1, struct.pack("<H", value)) for tag, value in
            ((256, 3), (257, 2), (258, 8), (259, 1), (262, 1), (278, 2))), (273, 4, 1, struct.pack("<I", 8)),
            (279, 4, 1, struct.pack("<I", 6))]  # fmt: skip
    content = tiff_data(tags, first=16)
    content = content[:8] + bytes([10, 20, 30, 40, 50, 60, 0, 0]) + content[8:]
    assert read(content, 3, 2, 1)[:, :, 0].tolist() == [[40, 10], [50, 20], [60, 30]]


@pytest.mark.parametrize("value", [(3, 1, struct.pack("<H", 99)), (2, 2, b"6\0"), (7, 3, b"abc"), (3, 1, b"\0\0")])
def test_a_rotation_that_is_none_is_none(value):
    file = io.BytesIO()
    Image.fromarray(half_white()).save(file, "JPEG", exif=b"Exif\0\0" + tiff_data([(0x0112, *value)]), quality=95)
    np.testing.assert_allclose(read(file.getvalue(), 2, 4, 1)[:, :, 0], [[255, 255, 0, 0], [0, 0, 0, 0]], atol=2)


@pytest.mark.parametrize("kind", ["TIFF", "array"])
@pytest.mark.parametrize(
    ("dtype", "values", "seen"),
    [
        ("int32", [0, 200], [0, 200]),
        ("int32", [0, 65535], [0, 255]),
        ("uint16", [0, 65535], [0, 255]),
        ("float32", [0, 1], [0, 255]),
    ],
)
def test_deep_grey(kind, dtype, values, seen):
    image = Image.fromarray(np.array([values], dtype=dtype))
    if kind == "TIFF":
        file = io.BytesIO()
        image.save(file, "TIFF")
        image = file.getvalue()
    assert read(image, 1, 2, 1)[0, :, 0].tolist() == seen


def grey_tiff(pixels: np.ndarray, photometric: int) -> bytes:
    """A TIFF file of grey pixels by the specification; photometric: 0 where 0 is white, 1 where it is black."""
    data, (height, width) = pixels.tobytes(), pixels.shape
    kind = 3 if pixels.dtype.kind == "f" else 1
    tags = {256: width, 257: height, 258: 8 * pixels.itemsize, 259: 1, 262: photometric, 273: 134, 277: 1, 278: height}
    tags |= {279: len(data), 339: kind}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", 0) + data


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize(("dtype", "most"), [(np.uint8, 255), (np.uint16, 65535), (np.float32, 1)])
def test_zero_is_white_at_every_depth(dtype, most, turn):
    pixels = (np.array([[0, 0.2, 1]]) * most).astype(dtype)
    seen = read(grey_tiff(pixels, 0 if turn else 1), 1, 3)[0, :, 0]
    assert seen.tolist() == ([255, 204, 0] if turn else [0, 51, 255])


def test_sixteen_bits_that_use_eight_are_not_black_without_a_word():
    with pytest.warns(UserWarning, match="uses no value above 255: it is read as almost black"):
        assert read(Image.fromarray(np.array([[0, 200]], dtype=np.uint16)), 1, 2, 1)[0, :, 0].tolist() == [0, 1]


@pytest.mark.parametrize(("dtype", "values"), [("int32", [-1, 5]), ("int32", [0, 99999]), ("float32", [0, 255])])
def test_grey_without_a_scale_is_refused(dtype, values, tmp_path):
    Image.fromarray(np.array([values], dtype=dtype)).save(tmp_path / "x.tif")
    with pytest.raises(BadImageError, match=r"x\.tif: .*grey values"):
        Preprocessing((1, 2), 1, (0.5,), (0.5,))(tmp_path / "x.tif")


def test_dark_portable_grey_of_sixteen_bits_stays_dark():
    with pytest.warns(UserWarning, match="almost black"):
        assert read(b"P5 2 1 65535\n\x00\x00\x00\xc8", 1, 2, 1)[0, :, 0].tolist() == [0, 1]


MODES = """1 L P RGB RGBA CMYK YCbCr LAB HSV I F LA PA RGBX RGBa La I;16 I;16L I;16B I;16N"""


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", MODES.split())
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 1)])
def test_every_mode_is_read(mode, channels, size):
    out = read(Image.new(mode, size), 3, 2, channels)
    assert (out.dtype, out.shape) == (np.uint8, (3, 2, channels))


@pytest.mark.parametrize("crop_pct", [1.0, 0.875])
@pytest.mark.parametrize("target", [(224, 224), (448, 448), (518, 518), (7, 13), (1, 384)])
def test_the_cut_lies_inside_of_every_image(target, crop_pct):
    for side in range(1, 4001):
        for size in ((side, side), (side, 5000), (5000, side), (side, side + 1)):
            left, top, right, bottom = centre_box(size, target, crop_pct)
            assert 0 <= left < right <= size[0]
            assert 0 <= top < bottom <= size[1]


@pytest.mark.parametrize("width", [29, 58, 232, 464, 928])
def test_widths_whose_cut_was_outside_by_rounding(width):
    for size in ((width, width), (width, 2 * width), (2 * width, width)):
        assert read(Image.new("RGB", size, (1, 2, 3)), 224, 224)[0, 0].tolist() == [1, 2, 3]
