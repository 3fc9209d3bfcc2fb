"""Images as they come: one treatment, checked against values worked out by hand."""

import io
import warnings

import numpy as np
import pytest
from PIL import Image

from vit_rpe.data import BadImageError, Preprocessing

from .image_files import speckle

GREY = Preprocessing((5, 7), 1, (0.5,), (0.25,), interpolation="nearest")
COLOUR = Preprocessing((5, 7), 3, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4), interpolation="nearest", background=(10, 20, 30))


def stored(image: Image.Image, kind: str, **options) -> io.BytesIO:
    """The image written as a file of ``kind``."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    file.seek(0)
    return file


def test_colour_passes_through():
    pixels = speckle(5, 7)
    np.testing.assert_array_equal(COLOUR.pixels(stored(Image.fromarray(pixels), "PNG")), pixels)
    np.testing.assert_array_equal(COLOUR.pixels(pixels), pixels)


def test_sixteen_bit_grey_is_scaled_not_clipped():
    values = np.array([[0, 128, 129, 257, 1000, 32768, 65535]] * 5, dtype=np.uint16)
    expected = np.array([[0, 0, 1, 1, 4, 128, 255]] * 5, dtype=np.uint8)
    for file in (stored(Image.fromarray(values), "PNG"), stored(Image.fromarray(values), "TIFF")):
        assert Image.open(file).mode.startswith("I")
        np.testing.assert_array_equal(GREY.pixels(file)[..., 0], expected)
    repeated = COLOUR.pixels(stored(Image.fromarray(values), "PNG"))
    np.testing.assert_array_equal(repeated, np.repeat(expected[..., None], 3, axis=2))


def test_floating_point_grey_is_0_to_1():
    values = np.linspace(0, 1, 35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(GREY.pixels(Image.fromarray(values))[..., 0], np.rint(values * 255))
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        GREY.pixels(Image.fromarray(values * 2))


def test_grey_beyond_sixteen_bits_is_refused():
    with pytest.raises(ValueError, match=r"grey values 0\.\.70000, expected 0\.\.65535"):
        GREY.pixels(Image.fromarray(np.array([[0, 70000]], dtype=np.int32)))


def test_palette_is_looked_up():
    image = Image.new("P", (7, 5))
    image.putpalette([200, 0, 0, 0, 100, 0, 0, 0, 50])
    image.putdata([(row + column) % 3 for row in range(5) for column in range(7)])
    colours = np.array([[200, 0, 0], [0, 100, 0], [0, 0, 50]])
    index = np.add.outer(np.arange(5), np.arange(7)) % 3
    np.testing.assert_array_equal(COLOUR.pixels(stored(image, "PNG")), colours[index])
    np.testing.assert_array_equal(COLOUR.pixels(stored(image, "GIF")), colours[index])


def test_transparency_shows_the_background():
    pixels = np.concatenate([speckle(5, 7), np.full((5, 7, 1), 255, dtype=np.uint8)], axis=2)
    pixels[2, 3, 3] = 0
    out = COLOUR.pixels(stored(Image.fromarray(pixels), "PNG"))
    assert list(out[2, 3]) == [10, 20, 30]
    pixels[2, 3, :3] = out[2, 3]
    np.testing.assert_array_equal(out, pixels[..., :3])


def test_half_transparency_is_blended():
    pixels = np.full((5, 7, 4), (210, 120, 30, 51), dtype=np.uint8)  # alpha 0.2
    out = COLOUR.pixels(Image.fromarray(pixels))
    assert np.abs(out.astype(int) - (50, 40, 30)).max() <= 1


@pytest.mark.parametrize("mode", ["P", "L", "RGB", "LA"])
def test_every_kind_of_transparency(mode):
    image = Image.new("RGB", (7, 5), (255, 255, 255)).convert(mode if mode != "LA" else "L")
    if mode == "LA":
        image.putalpha(0)
    clear = {"P": image.getpixel((0, 0)), "L": 255, "RGB": (255, 255, 255)}
    options = {"transparency": clear[mode]} if mode in clear else {}
    out = COLOUR.pixels(stored(image, "PNG", **options))
    np.testing.assert_array_equal(out, np.broadcast_to((10, 20, 30), out.shape))


def test_one_bit():
    bits = speckle(5, 7, 1)[..., 0] > 127
    np.testing.assert_array_equal(GREY.pixels(stored(Image.fromarray(bits), "PNG"))[..., 0], bits * 255)
    np.testing.assert_array_equal(COLOUR.pixels(Image.fromarray(bits))[..., 2], bits * 255)


def test_cmyk():
    image = Image.new("CMYK", (7, 5), (255, 0, 0, 0))
    for given in (image, stored(image, "TIFF")):
        assert list(COLOUR.pixels(given)[0, 0]) == [0, 255, 255]
    assert np.abs(COLOUR.pixels(stored(image, "JPEG", quality=100))[2, 2].astype(int) - (0, 255, 255)).max() <= 3


def test_grey_in_a_colour_model_and_the_reverse():
    grey = speckle(5, 7, 1)
    np.testing.assert_array_equal(COLOUR.pixels(Image.fromarray(grey[..., 0])), np.repeat(grey, 3, axis=2))
    np.testing.assert_array_equal(COLOUR.pixels(grey), np.repeat(grey, 3, axis=2))
    colour = speckle(5, 7)
    luma = colour @ np.array([0.299, 0.587, 0.114])
    for given in (colour, Image.fromarray(colour)):
        assert np.abs(GREY.pixels(given)[..., 0] - luma).max() <= 1


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [
        (1, lambda a: a),
        (2, lambda a: a[:, ::-1]),
        (3, lambda a: a[::-1, ::-1]),
        (4, lambda a: a[::-1]),
        (5, lambda a: a.transpose(1, 0, 2)),
        (6, lambda a: np.rot90(a, -1)),
        (7, lambda a: np.rot90(a.transpose(1, 0, 2), 2)),
        (8, lambda a: np.rot90(a)),
    ],
)
def test_exif_rotation(orientation, upright):
    pixels = speckle(5, 7)
    exif = Image.Exif()
    exif[0x0112] = orientation
    expected = upright(pixels)
    treatment = Preprocessing(expected.shape[:2], 3, (0.5,) * 3, (0.5,) * 3, interpolation="nearest")
    np.testing.assert_array_equal(treatment.pixels(stored(Image.fromarray(pixels), "PNG", exif=exif)), expected)


def test_decompression_bomb_is_refused_before_decoding():
    treatment = Preprocessing((5, 7), 3, (0.5,) * 3, (0.5,) * 3, max_pixels=1000)
    with pytest.raises(ValueError, match=r"50 x 21 pixels, at most 1000 are allowed"):
        treatment.pixels(stored(Image.new("RGB", (50, 21)), "PNG"))


@pytest.mark.parametrize(("width", "height"), [(10_000, 9_000), (20_000, 9_500)])
def test_real_bomb_gives_one_error_and_no_warning(width, height, tmp_path):
    path = tmp_path / "bomb.png"
    Image.new("1", (width, height)).save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BadImageError, match=r"bomb\.png"):
            COLOUR(path)


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (2, 5000)])
def test_tiny_and_odd_sizes(size):
    out = COLOUR.pixels(Image.new("RGB", size, (9, 8, 7)))
    np.testing.assert_array_equal(out, np.broadcast_to((9, 8, 7), (5, 7, 3)))


def test_wrong_array_is_refused():
    with pytest.raises(ValueError, match=r"array float64 \(5, 7, 3\), expected uint8"):
        COLOUR.pixels(np.zeros((5, 7, 3)))
