"""Hugging Face data sets and parquet, from disk; both need the optional package datasets."""

import sys

import numpy as np
import pytest
from PIL import Image

from vit_rpe.data import DataConfig, DataNotFoundError, build_data

from .image_files import speckle


def build(name, path, **options):
    config = DataConfig(name=name, path=str(path), crop_pct=1.0, **options)
    return build_data(config, img_size=(9, 13), in_chans=3, seed=0)


@pytest.mark.parametrize("name", ["hf", "parquet"])
def test_without_the_package_one_line_says_how_to_get_it(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataNotFoundError, match="needs the package datasets; install it with: pip install datasets"):
        build(name, "anything")


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    package = pytest.importorskip("datasets", reason="the optional package datasets is not installed")
    monkeypatch.setattr(package.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(package.config, "HF_DATASETS_OFFLINE", True, raising=False)
    return package


def rows(datasets, labels, *, seed=0, names=("cat", "dog", "emu")):
    """A table whose image k is ``speckle(9, 13, seed=seed + k)``."""
    images = [Image.fromarray(speckle(9, 13, seed=seed + number)) for number in range(len(labels))]
    features = datasets.Features({"picture": datasets.Image(), "kind": datasets.ClassLabel(names=list(names))})
    return datasets.Dataset.from_dict({"picture": images, "kind": labels}, features=features)


def check(samples, labels, seed):
    assert list(samples.labels) == labels
    for index in range(len(labels)):
        np.testing.assert_array_equal(samples[index][0].numpy(), speckle(9, 13, seed=seed + index).transpose(2, 0, 1))


def test_from_disk_with_two_splits(datasets, tmp_path):
    both = {"train": rows(datasets, [2, 0, 1]), "test": rows(datasets, [1, 0, 2], seed=9)}
    datasets.DatasetDict(both).save_to_disk(tmp_path / "set")
    bundle = build("hf", tmp_path / "set")
    assert bundle.class_names == ["cat", "dog", "emu"]
    check(bundle.train, [2, 0, 1], 0)
    check(bundle.val, [1, 0, 2], 9)


def test_validation_labels_go_by_name(datasets, tmp_path):
    both = {"train": rows(datasets, [0, 1, 2]), "val": rows(datasets, [0, 1, 2], names=("emu", "cat", "dog"))}
    for name, table in both.items():
        table.to_parquet(tmp_path / f"{name}-00000-of-00001.parquet")
    bundle = build("parquet", tmp_path)
    assert list(bundle.val.labels) == [2, 0, 1]


def test_one_parquet_file_is_split(datasets, tmp_path):
    rows(datasets, [0, 1, 2] * 5).to_parquet(tmp_path / "all.parquet")
    bundle = build("parquet", tmp_path / "all.parquet")
    assert (len(bundle.train), len(bundle.val)) == (12, 3)


def test_plain_bytes_and_numbers(datasets, tmp_path):
    import io

    def content(seed):
        file = io.BytesIO()
        Image.fromarray(speckle(9, 13, seed=seed)).save(file, "PNG")
        return file.getvalue()

    table = datasets.Dataset.from_dict({"image": [content(n) for n in range(4)], "label": [10, 9, 10, 9]})
    for name in ("train", "test"):
        table.to_parquet(tmp_path / f"{name}.parquet")
    bundle = build("parquet", tmp_path)
    assert bundle.class_names == ["9", "10"]
    check(bundle.train, [1, 0, 1, 0], 0)


def test_wrong_column_names_the_closest(datasets, tmp_path):
    rows(datasets, [0, 1, 2]).to_parquet(tmp_path / "all.parquet")
    with pytest.raises(ValueError, match=r"data\.label_key 'kinds'.*'kind'"):
        build("parquet", tmp_path / "all.parquet", label_key="kinds")


def test_missing_labels_are_refused(datasets, tmp_path):
    rows(datasets, [0, -1, 2]).to_parquet(tmp_path / "all.parquet")
    with pytest.raises(ValueError, match=r"column 'kind' holds the label (-1|None)"):
        build("parquet", tmp_path / "all.parquet")


def test_nothing_matches(datasets, tmp_path):
    with pytest.raises(DataNotFoundError, match="no parquet files match"):
        build("parquet", tmp_path / "none*.parquet")
    with pytest.raises(DataNotFoundError, match="cannot load the Hugging Face data set"):
        build("hf", tmp_path / "none")
