"""Rows without a label are refused in every form; numbers or names is decided on training; keys and classes once."""

import numpy as np
import pytest

from vit_rpe.data import DataConfig, DataNotFoundError, build_data
from vit_rpe.data.classes import check_label, unique
from vit_rpe.data.sources.decoding import decode, read_lines

from .test_shards import png, write_shard


def build(path, name="webdataset", **options):
    return build_data(DataConfig(name=name, path=str(path), **options), img_size=(9, 13), in_chans=3, seed=0)


@pytest.mark.parametrize(
    "value", [-1, "-1", "", " ", None, "nan", "None", float("nan"), 0.0, 1.0, [0, 1], (1,), {"a": 1}]
)
def test_no_label(value):
    with pytest.raises(ValueError, match=r"here holds the label .*a split without labels"):
        check_label(value, "here")


@pytest.mark.parametrize("value", [0, 7, True, np.int64(3), "cat", "a-1", "0"])
def test_a_label(value):
    check_label(value, "here")


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, -1, 0],
        [0.0, 1.0, 0.0, 1.0],
        [0.0, float("nan")] * 2,
        [[0, 1], [1, 0]] * 2,
        ["a", "", "b", "a"],
        [0, None, 1, 0],
    ],
)
def test_parquet_rows_without_labels(labels, tmp_path):
    datasets = pytest.importorskip("datasets")
    table = {"image": [png(n) for n in range(4)], "label": labels}
    datasets.Dataset.from_dict(table).to_parquet(tmp_path / "all.parquet")
    with pytest.raises(ValueError, match="column 'label' holds the label"):
        build(tmp_path / "all.parquet", "parquet")


@pytest.mark.parametrize("label", ["-1", "", "nan"])
def test_shards_without_labels(label, tmp_path):
    write_shard(tmp_path / "all.tar", [("k0", png(0), "0"), ("k1", png(1), label)])
    with pytest.raises(ValueError, match=r"all\.tar:k1\.cls holds the label"):
        build(tmp_path / "all.tar")


def test_numbers_and_names_do_not_mix_between_splits(tmp_path):
    """Names that look like numbers in validation are names where training has names, and the other way round."""
    write_shard(tmp_path / "train.tar", [(f"k{n}", png(n), ["cat", "7"][n % 2]) for n in range(4)])
    write_shard(tmp_path / "val.tar", [(f"k{n}", png(9 + n), "7") for n in range(2)])
    with pytest.warns(UserWarning, match="no validation image: cat"):
        bundle = build(tmp_path)
    assert bundle.class_names == ["7", "cat"]
    assert list(bundle.val.labels) == [0, 0]
    write_shard(tmp_path / "train.tar", [(f"k{n}", png(n), str(n % 2)) for n in range(4)])
    write_shard(tmp_path / "val.tar", [("k0", png(9), "cat")])
    with pytest.raises(
        ValueError, match=r"has the label 'cat', which training does not have: there labels are numbers"
    ):
        build(tmp_path)


def test_numbers_that_could_be_names_are_refused(tmp_path):
    write_shard(tmp_path / "all.tar", [(f"k{n}", png(n), str(n % 2)) for n in range(4)])
    (tmp_path / "classes.txt").write_text("1\n0\n")
    with pytest.raises(ValueError, match=r"labels 0, 1 are both names and line numbers of .*classes\.txt"):
        build(tmp_path / "all.tar")


@pytest.mark.parametrize("names", [["k0", "k0"], ["a/k0", "a/k0"]])
def test_a_key_twice_is_refused(names, tmp_path):
    write_shard(tmp_path / "all.tar", [(name, png(n), str(n)) for n, name in enumerate(names)])
    with pytest.raises(ValueError, match=r"all\.tar:.*: the key .* is there twice in one shard"):
        build(tmp_path / "all.tar")


@pytest.mark.parametrize("content", ["cat\ndog\ncat\n", "cat\n\ndog\n"])
def test_a_class_twice_or_without_a_name_is_refused(content, tmp_path):
    write_shard(tmp_path / "all.tar", [(f"k{n}", png(n), str(n % 2)) for n in range(4)])
    (tmp_path / "classes.txt").write_text(content)
    with pytest.raises(ValueError, match=r"classes\.txt lists ('cat' twice|an empty name)"):
        build(tmp_path / "all.tar")
    assert unique(["a", "b"], "here") == ["a", "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_lists_of_classes_are_decoded_by_their_mark(encoding, tmp_path):
    (tmp_path / "classes.txt").write_bytes("Bär\r\nzwei\r\n".encode(encoding))
    assert read_lines(tmp_path / "classes.txt") == ["Bär", "zwei"]


@pytest.mark.parametrize(("content", "words"), [("Bär".encode("latin-1"), "is no UTF-8 text"),
                                                ("Bär\n".encode("utf-16-le"), "is no (UTF-8 )?text")])  # fmt: skip
def test_what_is_no_text_is_refused(content, words):
    with pytest.raises(DataNotFoundError, match=f"here {words}.*UTF-8"):
        decode(content, "here")


def test_a_corpus_leaves_out_what_is_no_text_and_says_so(tmp_path):
    for number in range(8):
        (tmp_path / f"{number}.txt").write_bytes("abcé".encode("utf-16" if number % 2 else "utf-8-sig") * 50)
    (tmp_path / "picture.png").write_bytes(png(0))
    (tmp_path / ".hidden").write_text("x")
    config = DataConfig(name="text", path=str(tmp_path), length=4, val_fraction=0.4)
    bundle = build_data(config, img_size=None, in_chans=None, seed=0)
    assert set(bundle.treatment.characters[1:]) <= set("abcé\ufeff")
    assert bundle.account.left_out == {"hidden": 1, "no text": 1}
    assert bundle.account.to_dict()["met"] == 10
