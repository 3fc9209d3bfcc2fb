"""An empty take is told as such, with what was left out and why; what is in two classes is told too."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from vit_rpe.data import DataNotFoundError

from .image_files import write_class_folders
from .test_shards import png
from .test_splits import FILES, build


def shard(path: Path, names: list[str]) -> None:

    with tarfile.open(path, "w") as archive:
        for number, name in enumerate(names):
            content = png(number) if name.endswith("png") else b"%d" % (number // 2 % 2)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


GOOD = [f"s{n}.{kind}" for n in range(4) for kind in ("png", "cls")]
DOTTED = {
    "open_clip 480": [f"s{n}.{kind}" for n in range(4) for kind in ("input.png", "outputs.cls")],
    "refiner 124": [f"img.{n}.{kind}" for n in range(4) for kind in ("png", "cls")],
    "labels alone": [f"s{n}.cls" for n in range(4)],
    "nothing": [],
}


@pytest.mark.parametrize("bad", ["train", "val", "both"])
@pytest.mark.parametrize("name", DOTTED)
def test_shards_without_a_sample(name: str, bad: str, tmp_path: Path) -> None:
    for split in ("train", "val"):
        shard(tmp_path / f"{split}-0.tar", DOTTED[name] if bad in (split, "both") else GOOD)
    side = "validation" if bad == "val" else "training"
    with pytest.raises(DataNotFoundError, match=f"no {side} sample in .*the first dot of the name; left out ") as error:
        build("webdataset", tmp_path)
    if DOTTED[name]:
        assert DOTTED[name][0] in str(error.value)


def test_tables_without_a_row(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    empty = datasets.Dataset.from_dict({"image": [], "label": []}, features=features)
    for split in ("train", "val"):
        empty.to_parquet(str(tmp_path / f"{split}-0.parquet"))
    with pytest.raises(DataNotFoundError, match=r"no training images|cannot read"):
        build("parquet", tmp_path)


def test_an_empty_folder_of_a_split_and_links_to_nothing(tmp_path: Path) -> None:
    """MediSwarm 496: a share of training is held out, so why val/ was not must be said."""
    write_class_folders(tmp_path / "train", {"a": 5, "b": 5})
    write_class_folders(tmp_path / "val", {"a": 0})
    (tmp_path / "valid").symlink_to(tmp_path / "nowhere")
    (tmp_path / "train" / "c").symlink_to(tmp_path / "nowhere")
    (tmp_path / "train" / "a" / "notes").symlink_to(tmp_path / "nowhere")
    bundle = build("folder", tmp_path)
    assert bundle.account.left_out == {"folders of splits without an image": 1, "links to nothing": 3}
    assert bundle.account.first["folders of splits without an image"] == f"{tmp_path}/val"
    assert "stratified split" in bundle.split


@pytest.mark.parametrize("given", [False, True])
def test_an_empty_folder_of_a_split_beside_classes(given: bool, tmp_path: Path) -> None:
    write_class_folders(tmp_path / "all", {"a": 5, "b": 5, "val": 0})
    (tmp_path / "all" / "valid").symlink_to(tmp_path / "nowhere")
    write_class_folders(tmp_path / "other", {"a": 2, "b": 2}, size=(7, 7))
    bundle = build("folder", tmp_path / "all", **({"val_path": str(tmp_path / "other")} if given else {}))
    assert bundle.class_names == ["a", "b"]
    assert bundle.account.left_out == {"folders of splits without an image": 1, "links to nothing": 1}


@pytest.mark.parametrize("how", ["link", "hard link", "copy"])
@pytest.mark.parametrize("layout", ["train", "val", "held out"])
def test_one_image_in_two_classes(layout: str, how: str, tmp_path: Path) -> None:
    """CVA-Net 27."""
    for number, split in enumerate(("train", "val") if layout != "held out" else ("",)):
        write_class_folders(tmp_path / split, {"a": 5, "b": 5}, size=(9, 13 + number))
    assert build("folder", tmp_path).account.copies == ""
    root = tmp_path / layout if layout != "held out" else tmp_path
    {"link": os.symlink, "hard link": os.link, "copy": shutil.copy}[how](root / "a" / "1.png", root / "b" / "x.png")
    side = "validation" if layout == "val" else "training"
    pair = f"{root}/b/x.png = {root}/a/1.png"
    assert f"1 {side} images also in another class ({pair})" in build("folder", tmp_path).account.copies


@pytest.mark.parametrize("name", FILES)
def test_one_image_in_two_classes_of_files_of_many(name: str, tmp_path: Path) -> None:
    writer, ending = FILES[name]
    writer(tmp_path / f"train-0{ending}", 0)
    writer(tmp_path / f"train-1{ending}", 1)  # labels count from 0 in either: the same images under others
    writer(tmp_path / f"val-0{ending}", 40)
    assert "training images also in another class (" in build(name, tmp_path).account.copies


@pytest.mark.parametrize("split", ["train", "val"])
def test_one_text_in_two_classes(split: str, tmp_path: Path) -> None:
    for side in ("train", "val"):
        for folder in "ab":
            (tmp_path / side / folder).mkdir(parents=True)
            for number in range(2):
                (tmp_path / side / folder / f"{number}.txt").write_text(f"{side}{folder}{number}" * 9)
    assert build("text_classes", tmp_path).account.copies == ""
    shutil.copy(tmp_path / split / "a" / "1.txt", tmp_path / split / "b" / "x.txt")
    side = "training" if split == "train" else "validation"
    account = build("text_classes", tmp_path).account
    assert account.copies == f"1 {side} files also in another class (b/x.txt = a/1.txt)"
