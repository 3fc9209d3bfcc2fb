"""Folders of images in the layouts people have, and ImageNet's."""

import numpy as np
import pytest
from PIL import Image

from vit_rpe.data import DataConfig, DataNotFoundError, build_data

from .image_files import speckle, write_class_folders


def build(path, *, name="folder", **options):
    config = DataConfig(name=name, path=str(path), crop_pct=1.0, **options)
    return build_data(config, img_size=(9, 13), in_chans=3, seed=0)


@pytest.mark.parametrize("val_name", ["val", "valid", "validation", "test"])
def test_two_splits(tmp_path, val_name):
    write_class_folders(tmp_path / "train", {"b2": 3, "b10": 2})
    write_class_folders(tmp_path / val_name, {"b2": 1, "b10": 2})
    bundle = build(tmp_path)
    assert bundle.class_names == ["b2", "b10"]
    assert list(bundle.train.labels) == [0, 0, 0, 1, 1]
    assert list(bundle.val.labels) == [0, 1, 1]
    image, label = bundle.train[4]
    assert label == 1
    np.testing.assert_array_equal(image.numpy(), speckle(9, 13, seed=101).transpose(2, 0, 1))


def test_a_single_folder_is_split(tmp_path):
    write_class_folders(tmp_path, {"x": 10, "y": 5})
    bundle = build(tmp_path, val_fraction=0.4)
    assert (np.bincount(bundle.train.labels).tolist(), np.bincount(bundle.val.labels).tolist()) == ([6, 3], [4, 2])
    names = {bundle.train.images.name(i) for i in range(9)} | {bundle.val.images.name(i) for i in range(6)}
    assert len(names) == 15


def test_the_validation_folder_can_be_elsewhere(tmp_path):
    write_class_folders(tmp_path / "mine", {"x": 2, "y": 2})
    write_class_folders(tmp_path / "other", {"x": 1, "y": 3})
    assert len(build(tmp_path / "mine", val_path=str(tmp_path / "other")).val) == 4


def test_nested_folders_links_and_other_files(tmp_path):
    write_class_folders(tmp_path / "x" / "deep", {"er": 2})
    write_class_folders(tmp_path, {"y": 2, ".hidden": 2, "__MACOSX": 2})
    (tmp_path / "x" / "notes.txt").write_text("none")
    (tmp_path / "x" / "._1.png").write_bytes(b"")
    (tmp_path / "x" / "circle").symlink_to(tmp_path / "x")
    Image.fromarray(speckle(4, 5)).save(tmp_path / "y" / "BIG.JPG")
    bundle = build(tmp_path, val_fraction=0.5)
    assert bundle.class_names == ["x", "y"]
    assert len(bundle.train) + len(bundle.val) == 5


@pytest.mark.parametrize("name", ["folder", "imagenet"])
def test_nothing_there(tmp_path, name):
    with pytest.raises(DataNotFoundError, match="nowhere"):
        build(tmp_path / "nowhere", name=name)


def test_no_images(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.txt").write_text("")
    with pytest.raises(DataNotFoundError, match=r"no images in .*expected .*<class>/<image>"):
        build(tmp_path)


def test_imagenet(tmp_path):
    write_class_folders(tmp_path / "train", {"n01440764": 3, "n01443537": 2})
    write_class_folders(tmp_path / "val", {"n01440764": 1, "n01443537": 1})
    bundle = build(tmp_path, name="imagenet")
    assert bundle.class_names == ["n01440764", "n01443537"]
    assert bundle.preprocessing.mean == (0.485, 0.456, 0.406)
    assert (len(bundle.train), len(bundle.val)) == (5, 2)


def test_imagenet_with_unsorted_validation_images(tmp_path):
    write_class_folders(tmp_path / "train", {"n01440764": 3})
    (tmp_path / "val").mkdir()
    Image.fromarray(speckle(4, 5)).save(tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(DataNotFoundError, match=r"lie directly in .*val; move each into the folder of its class"):
        build(tmp_path, name="imagenet")
