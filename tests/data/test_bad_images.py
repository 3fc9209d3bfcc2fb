"""Truncated, empty and mislabelled files: an error with the path, or skipped, counted and capped."""

import pickle

import pytest
import torch
from PIL import Image

from vit_rpe.data import BadImageError, DataConfig, build_data, eval_loader, train_loader

from .image_files import speckle, write_class_folders


@pytest.fixture
def folder(tmp_path):
    """Ten images per class and split; in each split one is cut off, one empty, one a text file."""
    for split in ("train", "val"):
        write_class_folders(tmp_path / split, {"a": 10, "b": 10}, size=(40, 50))
        whole = (tmp_path / split / "a" / "3.png").read_bytes()
        (tmp_path / split / "a" / "3.png").write_bytes(whole[: len(whole) // 2])
        (tmp_path / split / "b" / "0.png").write_bytes(b"")
        (tmp_path / split / "b" / "7.png").write_text("<html>not found</html>")
        jpeg = Image.fromarray(speckle(40, 50))
        jpeg.save(tmp_path / split / "a" / "9.png", "JPEG")  # another format than its name says: readable
    return tmp_path


def build(folder, **options):
    config = DataConfig(name="folder", path=str(folder), batch_size=4, **options)
    return config, build_data(config, img_size=(6, 10), in_chans=3, seed=0)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("split", ["train", "val"])
def test_an_error_names_the_path(folder, num_workers, split):
    config, bundle = build(folder, num_workers=num_workers)
    loader = train_loader(bundle, config, seed=0) if split == "train" else eval_loader(bundle, config)
    with pytest.raises(BadImageError, match=f"cannot read image .*{split}.*png") as caught:
        list(loader)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_skipping_counts_and_reports(folder, num_workers):
    config, bundle = build(folder, num_workers=num_workers, on_bad_image="skip", augment="imagenet")
    assert bundle.bad_images.summary() == ""
    batches = list(train_loader(bundle, config, seed=0))
    assert [len(labels) for _, labels in batches] == [4] * 5  # an unreadable image is replaced: full batches
    assert len(bundle.bad_images) == 3
    labels = torch.cat([labels for _, labels in eval_loader(bundle, config)])
    assert len(labels) == 17  # and left out of the evaluation
    assert torch.bincount(labels).tolist() == [9, 8]
    assert len(bundle.bad_images) == 6
    list(eval_loader(bundle, config))
    assert len(bundle.bad_images) == 6  # counted once
    assert "6 image(s) could not be read" in bundle.bad_images.summary()


def test_skipping_is_the_same_in_every_run(folder):
    config, bundle = build(folder, on_bad_image="skip", augment="light")
    first, second = ([images for images, _ in train_loader(bundle, config, seed=3)] for _ in range(2))
    assert torch.equal(torch.cat(first), torch.cat(second))


def test_the_cap(folder):
    config, bundle = build(folder, on_bad_image="skip", max_bad_images=2)
    with pytest.raises(
        ValueError, match=r"data\.max_bad_images=2 is exceeded: 3 image\(s\) could not be read; the first: .*png"
    ):
        list(train_loader(bundle, config, seed=0))


def test_nothing_readable(tmp_path):
    """Told before training where no image can be read at all, and in words where all of them get lost later."""
    write_class_folders(tmp_path / "train", {"a": 4, "b": 4})
    write_class_folders(tmp_path / "val", {"a": 4, "b": 4})
    config, bundle = build(tmp_path, on_bad_image="skip")
    for split, side in (("val", "validation"), ("train", "training")):
        for path in (tmp_path / split).rglob("*.png"):
            path.write_bytes(b"")
        with pytest.raises(ValueError, match=f"none of the first 8 {side} images can be read"):
            build(tmp_path, on_bad_image="skip")
    with pytest.raises(ValueError, match=r"no training image left to fill a batch; 8 image\(s\) could not be read"):
        list(train_loader(bundle, config, seed=0))
    with pytest.raises(ValueError, match=r"nothing left to evaluate on; 16 image\(s\) could not be read"):
        list(eval_loader(bundle, config))


def test_the_error_survives_a_process_boundary():
    error = pickle.loads(pickle.dumps(BadImageError("a.png", "truncated")))
    assert str(error) == "cannot read image a.png: truncated"
    assert (error.name, error.reason) == ("a.png", "truncated")
