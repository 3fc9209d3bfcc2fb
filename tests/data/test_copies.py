"""The same bytes on both sides of a split, under names that do not tell: said in one line, in every source."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from vit_rpe.data.images import copies as module
from vit_rpe.data.images.copies import between_classes, copies
from vit_rpe.data.sources import ArrayImages, SubsetImages
from vit_rpe.data.sources.base import FileImages

from .image_files import write_class_folders
from .test_splits import FILES, build


def test_copies_in_given_folders(tmp_path: Path) -> None:
    write_class_folders(tmp_path / "train", {"a": 3, "b": 3})
    write_class_folders(tmp_path / "val", {"a": 3, "b": 3}, size=(9, 14))
    assert build("folder", tmp_path).account.copies == ""
    shutil.copy(tmp_path / "val" / "b" / "2.png", tmp_path / "train" / "a" / "holiday.png")
    shutil.copy(tmp_path / "val" / "b" / "1.png", tmp_path / "train" / "b" / "x.png")
    (tmp_path / "train" / "b" / "broken.png").symlink_to(tmp_path / "nothing.png")
    account = build("folder", tmp_path).account
    pair = f"{tmp_path}/train/a/holiday.png = {tmp_path}/val/b/2.png"
    assert account.copies == f"2 training images also among the validation images ({pair})"
    assert account.words().endswith(f"; {account.copies}")
    assert account.to_dict()["copies"] == account.copies
    assert account.taken == {"training": 9, "validation": 6}, "nothing is moved"


def test_copies_in_a_held_out_share(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 10, "b": 10})
    assert build("folder", tmp_path, val_fraction=0.5).account.copies == ""
    for path in sorted(tmp_path.glob("*/*.png")):
        shutil.copy(path, path.with_name(f"copy of {path.name}"))
    assert build("folder", tmp_path, val_fraction=0.5).account.copies


@pytest.mark.parametrize("name", FILES)
def test_copies_in_files_of_many_images(name: str, tmp_path: Path) -> None:
    writer, ending = FILES[name]
    writer(tmp_path / f"train-0{ending}", 0)
    writer(tmp_path / f"val-0{ending}", 10)
    assert build(name, tmp_path).account.copies == ""
    writer(tmp_path / f"train-1{ending}", 11)  # three of the images of val-0, in a file of their own
    assert build(name, tmp_path).account.copies.startswith("3 training images also among the validation images (")


@pytest.mark.parametrize("name", ["text", "text_classes"])
def test_copies_of_text(name: str, tmp_path: Path) -> None:
    for split in ("train", "val"):
        for folder in "ab":
            for number in range(3):
                path = tmp_path / split / folder / f"{number}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{split}{folder}{number}" * 9)
    assert build(name, tmp_path).account.copies == ""
    shutil.copy(tmp_path / "val" / "a" / "1.txt", tmp_path / "train" / "b" / "other.txt")
    assert build(name, tmp_path).account.copies.startswith(
        "1 training files also among the validation files (b/other.txt"
    )


def test_arrays_and_sets_too_large_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2)
    pixels[5] = pixels[1]
    images = ArrayImages(pixels, np.zeros(6, dtype=np.int64), "all")
    train, val = SubsetImages(images, np.array([0, 5, 2])), SubsetImages(images, np.array([4, 1]))
    assert copies(train, val) == [(1, 1)]
    assert copies(train, SubsetImages(images, np.array([3, 4]))) == []
    monkeypatch.setattr(module, "MOST", 4)
    assert copies(train, val) is None


def test_against_all_pairs_and_little_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of few sizes, beginnings and ends, compared byte for byte; whole files are read only where both agree."""
    random = np.random.default_rng(0)
    contents = [
        bytes([start]) * size + bytes([end]) * 1500 for start, end, size in random.integers(0, 3, (40, 3)).tolist()
    ]
    paths = [str(tmp_path / f"{number:02d}.png") for number in range(40)]
    for path, content in zip(paths, contents, strict=True):
        Path(path).write_bytes(content)
    labels = random.integers(0, 3, 40)
    images = FileImages(paths, labels)  # type: ignore[arg-type]
    first = {content: contents.index(content) for content in contents}
    expected = [(i, first[contents[i]]) for i in range(40) if labels[i] != labels[first[contents[i]]]]
    assert between_classes(images) == expected
    assert expected
    train, val = SubsetImages(images, np.arange(5, 25)), SubsetImages(images, np.r_[30:40, 0:5])
    mine, held = contents[5:25], contents[30:40] + contents[:5]
    assert copies(train, val) == [(i, held.index(own)) for i, own in enumerate(mine) if own in held]
    for number, path in enumerate(paths):
        Path(path).write_bytes(contents[number] + bytes([number]))
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read whole"))
    assert (between_classes(images), copies(train, val)) == ([], [])
