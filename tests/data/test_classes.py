"""One class map, from the training split; natural order; extra and missing classes."""

import numpy as np
import pytest

from vit_rpe.data import DataConfig, build_data
from vit_rpe.data.classes import class_numbers, natural_order

from .image_files import write_class_folders


def build(root, **options):
    config = DataConfig(name="folder", path=str(root), **options)
    return build_data(config, img_size=(6, 10), in_chans=3, seed=0)


def test_numbers_in_names_are_compared_as_numbers():
    assert natural_order(["10", "2", "a10b", "1", "a9b", "0", "a"]) == ["0", "1", "2", "10", "a", "a9b", "a10b"]


def test_order_does_not_depend_on_the_order_found():
    names = ["01", "1", "B", "b", "b1", "b01"]
    assert natural_order(names) == natural_order(reversed(names))


def test_validation_uses_the_map_of_training(tmp_path):
    write_class_folders(tmp_path / "train", {"0": 2, "1": 2, "2": 2, "10": 2})
    write_class_folders(tmp_path / "val", {"0": 1, "1": 0, "2": 1, "10": 1})
    with pytest.warns(UserWarning, match="1 of 4 classes have no validation image: 1"):
        bundle = build(tmp_path)
    assert bundle.class_names == ["0", "1", "2", "10"]
    assert list(bundle.train.labels) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert list(bundle.val.labels) == [0, 2, 3]


def test_an_extra_validation_class_is_named(tmp_path):
    write_class_folders(tmp_path / "train", {"cat": 2, "dog": 2})
    write_class_folders(tmp_path / "val", {"cat": 1, "dog": 1, "emu": 1})
    with pytest.raises(ValueError, match=r"validation has 1 class\(es\) that training does not have: emu"):
        build(tmp_path)


def test_an_empty_training_folder_stays_a_class(tmp_path):
    write_class_folders(tmp_path / "train", {"cat": 2, "cow": 0, "dog": 2})
    write_class_folders(tmp_path / "val", {"cat": 1, "cow": 1, "dog": 1})
    with pytest.warns(UserWarning, match="1 of 3 classes have no training image: cow"):
        bundle = build(tmp_path)
    assert list(bundle.val.labels) == [0, 1, 2]


def test_label_range_is_checked_against_the_model(tmp_path):
    write_class_folders(tmp_path, {"cat": 3, "cow": 3, "dog": 3})
    bundle = build(tmp_path)
    bundle.check_labels(3)
    with pytest.raises(ValueError, match=r"training labels are 0\.\.2, the model has num_classes=2"):
        bundle.check_labels(2)


def test_numbers_are_int64():
    numbers = class_numbers(["b", "a", "b"], ["a", "b"], split="training")
    assert numbers.dtype == np.int64
    assert list(numbers) == [1, 0, 1]
