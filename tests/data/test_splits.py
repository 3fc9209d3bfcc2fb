"""No sample on both sides, no split taken for a class, nothing left out without a word: in every source of files."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vit_rpe.data import DataConfig, DataNotFoundError, build_data
from vit_rpe.data.sources.splits import split_of

from .image_files import speckle, write_class_folders
from .test_shards import write_shard

CLASSES = {"cat": 3, "dog": 2}


def build(name, path, **options):
    config = DataConfig(name=name, path=str(path), length=4, characters=9) if name.startswith("text") else None
    config = config or DataConfig(name=name, path=str(path), **options)
    return build_data(config, img_size=(9, 13), in_chans=3, seed=0)


def write(root: Path, layout: dict[str, dict[str, int]]) -> Path:
    for place, classes in layout.items():
        write_class_folders(root / place, classes)
    return root


def real_names(samples) -> set[str]:
    """What the samples are: real paths, and the place in them."""
    names = [samples.images.name(index) for index in range(len(samples))]
    parts = [name.partition(".tar:") if ".tar:" in name else (name, "", "") for name in names]
    return {f"{Path(path + sign[:4]).resolve()}:{member}" for path, sign, member in parts}


def images(bundle) -> tuple[list, list]:
    """All images of both sides, as bytes."""
    return tuple(
        [side[index][0].numpy().tobytes() for index in range(len(side))] for side in (bundle.train, bundle.val)
    )


@pytest.mark.parametrize(
    "name", ["train", "Train", "TRAINING", "training_set", "Train2017", "train-data", "train_images"]
)
def test_names_of_training(name):
    assert split_of(name) == "train"


@pytest.mark.parametrize(
    ("name", "split"),
    [("Val", "val"), ("dev", "val"), ("VALIDATION", "val"), ("Testing", "test"), ("test_set", "test")],
)
def test_names_of_what_is_held_out(name, split):
    assert split_of(name) == split


@pytest.mark.parametrize("name", ["trains", "trainer", "valley", "tester", "contest", "eva", "validator", "1"])
def test_names_of_classes(name):
    assert split_of(name) is None


@pytest.mark.parametrize(
    ("train", "val", "word"),
    [
        ("Train", "Val", "validation"),
        ("Training", "Testing", "test"),
        ("training_set", "test_set", "test"),
        ("TRAIN", "dev", "validation"),
    ],
)
def test_splits_are_known_whatever_their_case(tmp_path, train, val, word):
    bundle = build("folder", write(tmp_path, {train: CLASSES, val: CLASSES}))
    assert bundle.class_names == ["cat", "dog"]
    assert (len(bundle.train), len(bundle.val), bundle.held_out) == (5, 5, word)
    assert f"5 training and 5 {word} images" in bundle.split


@pytest.mark.parametrize(
    ("layout", "named"),
    [
        ({".": CLASSES, "val": CLASSES}, ("val/", "cat/, dog/")),
        ({".": {**CLASSES, "test": 3}}, ("test/", "cat/, dog/")),
        ({".": {"car": 2, "bus": 2}, "train": {"steam": 2, "diesel": 1}}, ("train/", "bus/, car/")),
    ],
)
def test_two_readings_are_refused_with_both(tmp_path, layout, named):
    with pytest.raises(ValueError, match="can be read in two ways") as caught:
        build("folder", write(tmp_path, layout))
    for words in named:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"train": CLASSES, "Training": CLASSES}, "two folders for one split: Training/, train/"),
        ({"val": CLASSES}, r"has val/ but no train/"),
        ({"a/photos": CLASSES}, r"the only class of .* is 'a'.*its folders are photos.*data\.path, .*/a\?"),
        ({"photos": CLASSES}, r"the only class of .* is 'photos'.*its folders are cat, dog"),
        ({".": {"one": 3}}, "the only class of .* is 'one': expected a folder for each of 2 or more classes"),
        ({"train/train": CLASSES, "train/val": CLASSES}, r"the classes of .*train would be train, val"),
        ({"train": CLASSES, ".": {"val": 4}}, r"val has images but no folder of a class"),
    ],
)
def test_layouts_that_cannot_be_meant(tmp_path, layout, message):
    with pytest.raises(ValueError, match=message):
        build("folder", write(tmp_path, layout))


def test_what_is_left_out_is_said(tmp_path):
    write(tmp_path, {"train": CLASSES, "val": CLASSES, ".": {"test": 4}, "train/.trash": {"cat": 3}})
    (tmp_path / "train" / "cat" / "notes.txt").write_text("")
    (tmp_path / "train" / "cat" / "._1.png").write_bytes(b"")
    (tmp_path / "train" / "cat" / "folder.png").mkdir()
    (tmp_path / "train" / "stray.png").write_bytes(b"")
    account = build("folder", tmp_path, fraction=0.5).account
    assert account.taken == {"training": 2, "validation": 5}
    assert account.left_out == {
        "folders of another split": 1,
        "hidden": 2,
        "no images by their names": 1,
        "in no folder of a class": 1,
        "not in data.fraction": 3,
    }
    assert account.to_dict()["met"] == 2 + 5 + 8
    assert account.first["no images by their names"] == str(tmp_path / "train" / "cat" / "notes.txt")
    assert "left out 8: " in account.words()
    assert "\n" not in account.words()


@pytest.mark.parametrize("spelling", ["all/hold", "all/cat/../hold", "link"])
def test_validation_inside_of_training_is_apart(tmp_path, spelling):
    write(tmp_path / "all", {".": CLASSES, "hold": CLASSES})
    (tmp_path / "link").symlink_to(tmp_path / "all" / "hold")
    bundle = build("folder", tmp_path / "all", val_path=str(tmp_path / spelling))
    assert bundle.class_names == ["cat", "dog"]
    assert not real_names(bundle.train) & real_names(bundle.val)
    assert (len(bundle.train), len(bundle.val)) == (5, 5)


def test_links_to_training_images_are_validation_images(tmp_path):
    write(tmp_path / "all", {".": CLASSES})
    for name in CLASSES:
        (tmp_path / "links" / name).mkdir(parents=True)
        (tmp_path / "links" / name / "x.png").symlink_to(tmp_path / "all" / name / "0.png")
    bundle = build("folder", tmp_path / "all", val_path=str(tmp_path / "links"))
    assert not real_names(bundle.train) & real_names(bundle.val)
    assert bundle.account.left_out == {"training files that are validation files": 2}


def test_validation_that_is_training_is_refused(tmp_path):
    write(tmp_path, {"train": CLASSES})
    with pytest.raises(ValueError, match=r"data\.val_path is the folder of the training images"):
        build("folder", tmp_path, val_path=str(tmp_path / "train"))


def png(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(speckle(9, 13, seed=seed)).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, first: int) -> None:
    write_shard(path, [(f"k{n}", png(first + n), str(n % 2)) for n in range(4)])


def write_parquet(path: Path, first: int) -> None:
    datasets = pytest.importorskip("datasets")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {"image": [png(first + n) for n in range(4)], "label": [n % 2 for n in range(4)]}
    datasets.Dataset.from_dict(rows).to_parquet(path)


FILES = {"webdataset": (write_tar, ".tar"), "parquet": (write_parquet, ".parquet")}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("files", "sizes"),
    [
        (["part-0", "part-1", "test-0"], (8, 4)),
        (["train/0000", "test/0000"], (4, 4)),
        (["data/train-0", "data/validation-0", "data/test-0"], (4, 4)),
        (["Train_0", "VAL_0", "extra"], (4, 4)),
        (["a", "b"], (6, 2)),
        (["val-0", "val-1", "test-0", "a"], (4, 8)),
    ],
)
def test_files_of_a_folder_are_splits_by_their_names(name, files, sizes, tmp_path):
    writer, ending = FILES[name]
    for number, file in enumerate(files):
        writer(tmp_path / "in[v1]" / f"{file}{ending}", 10 * number)
    bundle = build(name, tmp_path / "in[v1]")
    train, val = images(bundle)
    assert (len(train), len(val)) == sizes
    assert not set(train) & set(val)
    assert len(set(train)) == len(train)
    assert bundle.account.to_dict()["met"] == len(train) + len(val) + sum(bundle.account.left_out.values())


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("form", ["{root}", "{root}/*{ending}", "{root}/../{folder}"])
@pytest.mark.parametrize("held", ["{root}/b{ending}", "{root}/./b{ending}", "{root}/../link{ending}"])
def test_a_validation_file_among_the_training_files(name, form, held, tmp_path):
    writer, ending = FILES[name]
    root = tmp_path / "in[v1]"
    for number, file in enumerate("ab"):
        writer(root / f"{file}{ending}", 10 * number)
    (tmp_path / f"link{ending}").symlink_to(root / f"b{ending}")
    path, val_path = (text.format(root=root, ending=ending, folder=root.name) for text in (form, held))
    bundle = build(name, path, val_path=val_path)
    train, val = images(bundle)
    assert (len(train), len(val)) == (4, 4)
    assert not set(train) & set(val)
    assert bundle.account.left_out == {"training files that are validation files": 1}
    with pytest.raises(DataNotFoundError, match="every training file is a validation file too"):
        build(name, val_path, val_path=str(root))


def test_a_shard_named_twice_is_refused(tmp_path):
    write_tar(tmp_path / "a.tar", 0)
    with pytest.raises(ValueError, match=r"data\.path=.* names the shard .*a\.tar twice"):
        build("webdataset", f"{tmp_path}/a.tar::{tmp_path}/*.tar")


def test_options_without_effect_beside_a_split_of_its_own(tmp_path):
    write(tmp_path, {"train": CLASSES, "val": CLASSES})
    with pytest.raises(ValueError, match=r"data\.val_fraction=0\.5 means nothing"):
        build("folder", tmp_path, val_fraction=0.5)
    with pytest.raises(ValueError, match=r"data\.split_seed=3 means nothing"):
        build("folder", tmp_path, split_seed=3)
    assert len(build("folder", tmp_path, split_seed=3, fraction=0.5).train) == 2


@pytest.mark.parametrize("name", ["text", "text_classes"])
@pytest.mark.parametrize("places", [("train", "val"), ("Train", "Testing")])
def test_splits_of_text(name, places, tmp_path):
    for place in places:
        for folder in ("letters", "digits"):
            (tmp_path / place / folder).mkdir(parents=True)
            text = {"letters": "abcd", "digits": "0123"}[folder] * 200
            (tmp_path / place / folder / "0.txt").write_text(text if place == places[0] else text.upper())
    bundle = build(name, tmp_path)
    assert bundle.held_out == {"val": "validation", "Testing": "test"}[places[1]]
    if name == "text_classes":
        assert bundle.class_names == ["digits", "letters"]
    assert "A" not in bundle.treatment.characters, "the vocabulary is that of the training text"


def test_validation_text_inside_of_training_text_is_apart(tmp_path):
    for name, letter in (("a", "a"), ("b", "b"), ("test", "c")):  # a folder of text may have any name
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(letter * 400)
    config = DataConfig(name="text", path=str(tmp_path), val_path=str(tmp_path / "a" / ".." / "b"), length=4)
    bundle = build_data(config, img_size=None, in_chans=None, seed=0)
    assert set(np.unique(bundle.train.labels)) == {1, 2}
    assert bundle.treatment.characters[1:] == ("a", "c")
    with pytest.raises(ValueError, match="can be read in two ways"):
        build("text_classes", tmp_path)
