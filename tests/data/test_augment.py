"""The presets: what they keep, what they change, and their own warp against a plain loop."""

import math

import numpy as np
import pytest

from vit_rpe.data import DataConfig, Preprocessing
from vit_rpe.data.images.augment import Augmentation
from vit_rpe.data.images.config import AUGMENT_PRESETS

from .image_files import speckle


def augmentation(preset: str, *, in_chans: int = 3, img_size: tuple[int, int] = (20, 28)) -> Augmentation:
    return Augmentation(preset, Preprocessing(img_size, in_chans, (0.5,) * in_chans, (0.25,) * in_chans))


@pytest.mark.parametrize("preset", AUGMENT_PRESETS)
@pytest.mark.parametrize("in_chans", [1, 3])
@pytest.mark.parametrize("size", [(20, 28), (50, 31), (3, 90), (1, 1)])
def test_any_image_gives_the_model_size(preset, in_chans, size):
    augment = augmentation(preset, in_chans=in_chans)
    for source_channels in (1, 3):
        pixels = augment.read(speckle(*size, source_channels))
        for index in range(12):
            out = augment(pixels, (0, 0, index))
            assert out.shape == (20, 28, in_chans)
            assert out.dtype == np.uint8


def test_none_is_the_evaluation_treatment():
    image = speckle(50, 31)
    augment = augmentation("none")
    np.testing.assert_array_equal(augment(augment.read(image), (0, 0, 3)), augment.preprocessing.pixels(image))


def test_light_only_shifts_and_flips():
    """The middle of the image is always there, moved by at most an eighth, perhaps mirrored."""
    image, augment = speckle(20, 28), augmentation("light")
    middle = image[4:16, 6:22]
    moves = set()
    for index in range(150):
        out = augment(image, (0, 0, index))
        found = [
            (down, right, flip)
            for flip, turned in ((0, out), (1, out[:, ::-1]))
            for down in range(-2, 3)
            for right in range(-3, 4)
            if np.array_equal(turned[4 + down : 16 + down, 6 + right : 22 + right], middle)
        ]
        assert len(found) == 1
        moves.add(found[0])
    assert {move[0] for move in moves} == set(range(-2, 3))
    assert {move[1] for move in moves} == set(range(-3, 4))
    assert {move[2] for move in moves} == {0, 1}


@pytest.mark.parametrize("preset", ["cifar", "deit"])
def test_erasing_covers_a_rectangle_in_about_a_quarter_of_the_images(preset):
    """On a black image nothing but erasing and the border of a warp makes noise of many values."""
    augment = augmentation(preset)
    black = np.zeros((20, 28, 3), dtype=np.uint8)
    noisy = [len(np.unique(augment(black, (0, 1, index)))) > 40 for index in range(400)]
    assert 0.15 < np.mean(noisy) < 0.35


@pytest.mark.parametrize("kind", ["rotate", "shear_x", "shear_y", "translate_x", "translate_y"])
@pytest.mark.parametrize("strength", [-0.21, 0.13])
def test_warp_moves_every_pixel_as_its_formula_says(kind, strength):
    """Follow a smooth ramp: the colour found at the warped place is the colour of the origin."""
    from vit_rpe.data.images.warp import Warp

    height, width = 41, 63
    rows, columns = np.mgrid[0:height, 0:width]
    image = np.stack([3 * columns, 5 * rows, 0 * rows], axis=2).astype(np.uint8)
    out = Warp(kind, 0.3, (1, 2, 3)).apply(image, strength)
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    checked = 0
    for row in range(2, height - 2, 4):
        for column in range(2, width - 2, 5):
            x, y = column - middle_x, row - middle_y
            new_x, new_y = {
                "rotate": (
                    math.cos(strength) * x - math.sin(strength) * y,
                    math.sin(strength) * x + math.cos(strength) * y,
                ),
                "shear_x": (x + strength * y, y),
                "shear_y": (x, y + strength * x),
                "translate_x": (x + strength * width, y),
                "translate_y": (x, y + strength * height),
            }[kind]
            new_row, new_column = round(new_y + middle_y), round(new_x + middle_x)
            if 1 <= new_row < height - 1 and 1 <= new_column < width - 1:
                assert abs(int(out[new_row, new_column, 0]) - 3 * column) <= 6
                assert abs(int(out[new_row, new_column, 1]) - 5 * row) <= 8
                checked += 1
    assert checked > 40


def test_warp_fills_with_the_given_colour():
    from vit_rpe.data.images.warp import Warp

    out = Warp("translate_x", 0.5, (1, 2, 3)).apply(speckle(20, 28), 0.5)
    np.testing.assert_array_equal(out[:, :14], np.broadcast_to((1, 2, 3), (20, 14, 3)))


def test_unknown_preset_names_the_closest():
    with pytest.raises(ValueError, match=r"cifer.*cifar"):
        DataConfig(augment="cifer")


def test_albumentations_asks_the_network_for_nothing(monkeypatch):
    """The import looks for a newer version unless the variable is set before it."""
    import os
    import subprocess
    import sys

    monkeypatch.delenv("NO_ALBUMENTATIONS_UPDATE", raising=False)
    code = (
        "import urllib.request as u\n"
        "def refuse(*a, **k): raise SystemExit('asked the network')\n"
        "u.urlopen = refuse; u.OpenerDirector.open = refuse\n"
        "from vit_rpe.data import Preprocessing\n"
        "from vit_rpe.data.images.augment import Augmentation\n"
        "Augmentation('light', Preprocessing((8, 12), 1, (0.5,), (0.5,)))\n"
        "import os; assert os.environ['NO_ALBUMENTATIONS_UPDATE'] == '1'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr
