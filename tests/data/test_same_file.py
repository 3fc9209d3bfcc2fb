"""One file under several names is one file: in every source, whether splits are given or a share is held out."""

import os
import unicodedata
from pathlib import Path

import pytest

from vit_rpe.data.account import Account
from vit_rpe.data.images.files import identity, images_below

from .image_files import write_class_folders
from .test_splits import FILES, build, images

LINKS = {"link": os.symlink, "hard link": os.link}


def twins(root: Path, link, *, into: Path | None = None) -> int:
    """Give every file below ``root`` a second name, beside it or in the same place below ``into``."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for path in files:
        other = (into or root) / path.relative_to(root).parent / f"twin-{path.name}"
        other.parent.mkdir(parents=True, exist_ok=True)
        link(path, other)
    return len(files)


@pytest.mark.parametrize("kind", LINKS)
def test_what_a_file_is(kind, tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "b.png").write_bytes(b"")
    LINKS[kind](tmp_path / "a.png", tmp_path / "c.png")
    found: dict[str, int] = {}
    images_below(str(tmp_path), Account(), found=found)
    assert found == {str(tmp_path / name): identity(str(tmp_path / name)) for name in ("a.png", "b.png", "c.png")}
    assert found[str(tmp_path / "a.png")] == found[str(tmp_path / "c.png")] != found[str(tmp_path / "b.png")]


@pytest.mark.parametrize("kind", LINKS)
def test_a_held_out_share_of_images_with_two_names(kind, tmp_path):
    write_class_folders(tmp_path, {"cat": 9, "dog": 7})
    alone = images(build("folder", tmp_path, val_fraction=0.3))
    count = twins(tmp_path, LINKS[kind])
    bundle = build("folder", tmp_path, val_fraction=0.3)
    train, val = images(bundle)
    assert not set(train) & set(val)
    assert len(train) + len(val) == count
    assert bundle.account.left_out == {"other names of one file": count}
    assert (train, val) == alone, "names that are no more files change no split"


@pytest.mark.parametrize("kind", LINKS)
def test_training_images_under_other_names_of_validation_images(kind, tmp_path):
    for split in ("train", "val"):
        write_class_folders(tmp_path / split, {"cat": 4, "dog": 3})
    count = twins(tmp_path / "val", LINKS[kind], into=tmp_path / "train")
    bundle = build("folder", tmp_path)
    train, val = images(bundle)
    assert (len(train), len(val)) == (7, 7)
    assert bundle.account.left_out == {"training files that are validation files": count}


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("name", FILES)
def test_files_of_many_images_under_another_name(name, kind, tmp_path):
    writer, ending = FILES[name]
    for number, file in enumerate(("train-0", "val-0")):
        writer(tmp_path / f"{file}{ending}", 10 * number)
    LINKS[kind](tmp_path / f"val-0{ending}", tmp_path / f"train-1{ending}")
    if name == "webdataset":
        with pytest.raises(ValueError, match=r"names the shard .* twice"):
            build(name, tmp_path)
        return
    LINKS[kind](tmp_path / f"train-0{ending}", tmp_path / f"train-2{ending}")
    bundle = build(name, tmp_path)
    train, val = images(bundle)
    assert (len(train), len(val)) == (4, 4)
    assert not set(train) & set(val)
    assert bundle.account.left_out == {"training files that are validation files": 1, "other names of one file": 1}


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("name", ["text", "text_classes"])
def test_text_under_another_name(name, kind, tmp_path):
    for number in range(40):
        for folder in ("digits", "letters"):
            path = tmp_path / "train" / folder / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text({"digits": "0123", "letters": "abcd"}[folder] * 50)
    count = twins(tmp_path / "train", LINKS[kind])
    bundle = build(name, tmp_path / "train")
    assert bundle.account.left_out == {"other names of one file": count}
    for folder in ("digits", "letters"):
        (tmp_path / "val" / folder).mkdir(parents=True)
        (tmp_path / "val" / folder / "new.txt").write_text("0123abcd" * 50)
        LINKS[kind](tmp_path / "train" / folder / "3.txt", tmp_path / "val" / folder / "x.txt")
    assert build(name, tmp_path).account.left_out == {"training files that are validation files": 4}


def test_one_class_in_two_spellings_of_its_accent(tmp_path):
    composed, apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    write_class_folders(tmp_path / "train", {composed: 3, "tea": 2})
    write_class_folders(tmp_path / "val", {apart: 3, "tea": 2})
    assert build("folder", tmp_path).class_names == [composed, "tea"]
    write_class_folders(tmp_path / "train", {apart: 1})
    with pytest.raises(ValueError, match="two folders for the class 'café'"):
        build("folder", tmp_path)
