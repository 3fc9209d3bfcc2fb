"""The evaluation treatment: crop and resize against Pillow's two steps, normalisation, and its travel form."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from vit_rpe.data import BadImageError, DataConfig, Preprocessing, build_data, rebuild_data
from vit_rpe.data.images.build import build_preprocessing
from vit_rpe.data.sources import DataSource

from .image_files import speckle, write_class_folders


def treatment(**options) -> Preprocessing:
    values = {"img_size": (20, 30), "in_chans": 3, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)} | options
    return Preprocessing(**values)


@pytest.mark.parametrize("size", [(90, 60), (60, 120), (240, 40), (15, 30)])
def test_crop_equals_resizing_the_short_side_and_cutting_the_centre(size):
    """(width, height) with a whole-pixel centre, so that Pillow can take the usual two steps."""
    image = Image.fromarray(speckle(7, 5)).resize(size, Image.Resampling.BICUBIC)  # noise rounds differently
    scale = max(30 / size[0], 20 / size[1])
    width, height = round(size[0] * scale), round(size[1] * scale)
    left, top = (width - 30) // 2, (height - 20) // 2
    whole = image.resize((width, height), Image.Resampling.BICUBIC)
    expected = np.asarray(whole.crop((left, top, left + 30, top + 20))).astype(int)
    assert np.abs(treatment().pixels(image) - expected).max() <= 1


def test_crop_pct_keeps_the_middle():
    ramp = np.broadcast_to(np.arange(200, dtype=np.uint8)[None, :, None], (120, 200, 3))
    out = treatment(crop_pct=0.5, interpolation="bilinear").pixels(Image.fromarray(ramp.copy()))
    box_width = 0.5 * 180  # the widest 3:2 box of a 200 x 120 image is 180 wide
    first, last = 100 - box_width / 2 + box_width / 60, 100 + box_width / 2 - box_width / 60
    np.testing.assert_allclose(out[10, [0, -1], 0], [first, last], atol=1.5)


def test_normalise_and_back():
    images = torch.from_numpy(speckle(20, 30).transpose(2, 0, 1).copy())[None]
    out = treatment().normalize(images)
    for channel, (mean, std) in enumerate(zip((0.4, 0.5, 0.6), (0.2, 0.3, 0.4), strict=True)):
        torch.testing.assert_close(out[:, channel], (images[:, channel] / 255 - mean) / std)
    torch.testing.assert_close(treatment().denormalize(out), images / 255)


def test_travels_as_json():
    original = treatment(crop_pct=0.9, interpolation="bilinear", background=(1, 2, 3))
    again = Preprocessing.from_dict(json.loads(json.dumps(original.to_dict())))
    assert again == original
    image = Image.fromarray(speckle(41, 77))
    assert torch.equal(again(image), original(image))
    with pytest.raises(ValueError, match=r"img_sise.*img_size"):
        Preprocessing.from_dict({**original.to_dict(), "img_sise": [3, 4]})


def test_prediction_equals_evaluation_equals_untouched_training(tmp_path):
    write_class_folders(tmp_path, {"a": 4, "b": 4}, size=(23, 31))
    bundle = build_data(DataConfig(name="folder", path=str(tmp_path)), img_size=(6, 10), in_chans=3, seed=0)
    for samples in (bundle.train, bundle.val):
        image, _ = samples[1]
        torch.testing.assert_close(bundle.preprocessing(samples.images.image(1)), bundle.to_device_batch(image, "cpu"))


def test_a_trained_model_keeps_its_own_treatment(tmp_path):
    """Other data do not bring their own crop, statistics or augmentation."""
    write_class_folders(tmp_path, {"a": 4, "b": 4}, size=(23, 31))
    config = DataConfig(name="folder", path=str(tmp_path), augment="light")
    own = treatment(crop_pct=0.6, interpolation="nearest")
    bundle = rebuild_data(config, own)
    assert bundle.preprocessing == own
    for samples in (bundle.train, bundle.val):
        torch.testing.assert_close(own(samples.images.image(1)), bundle.to_device_batch(samples[1][0], "cpu"))
    with pytest.raises(ValueError, match="gives text, the model takes images"):
        rebuild_data(DataConfig(name="text", path=str(tmp_path)), own)


def test_statistics_follow_the_channels():
    bundle = build_data(DataConfig(), img_size=(8, 8), in_chans=3, seed=0)
    assert bundle.preprocessing.mean == (0.3053,) * 3
    folder = DataSource(None, None, [], mean=(0.1, 0.2, 0.6), std=(0.3, 0.3, 0.3))
    grey = build_preprocessing(DataConfig(), folder, img_size=(8, 8), in_chans=1)
    assert grey.mean == pytest.approx((0.3,))


@pytest.mark.parametrize(("channels", "given"), [(1, 3), (1, 2), (3, 1), (3, 2), (3, 4)])
@pytest.mark.parametrize("key", ["mean", "std"])
def test_given_statistics_are_checked_not_averaged(key, channels, given):
    config = DataConfig(**{key: (0.1, 0.2, 0.3, 0.4)[:given]})
    with pytest.raises(ValueError, match=rf"{key}=.*expected {channels} number"):
        build_data(config, img_size=(8, 8), in_chans=channels, seed=0)


def test_integers_are_numbers():
    config = DataConfig(mean=(0,), std=(1,))
    images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    bundle = build_data(config, img_size=(8, 8), in_chans=1, seed=0)
    torch.testing.assert_close(bundle.to_device_batch(images, "cpu"), torch.tensor([[[[0.0, 1.0]]]]))
    torch.testing.assert_close(bundle.preprocessing.denormalize(torch.tensor([[[[0.0, 1.0]]]])), images / 255.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_chans": 4}, "in_chans=4, images are read with 1 or 3 channels"),
        ({"mean": (0.5,)}, r"mean=\(0.5,\), expected 3 numbers"),
        ({"interpolation": "bicubik"}, "bicubik.*bicubic"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        treatment(**options)


def test_unreadable_path_is_named(tmp_path):
    (tmp_path / "note.jpg").write_text("no image")
    with pytest.raises(BadImageError, match=r"cannot read image .*note\.jpg: cannot identify"):
        treatment()(tmp_path / "note.jpg")
    with pytest.raises(BadImageError, match=r"none\.jpg: .*No such file"):
        treatment()(str(tmp_path / "none.jpg"))
