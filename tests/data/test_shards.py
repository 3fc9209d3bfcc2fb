"""WebDataset shards, written here in the format: key.png, key.cls."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vit_rpe.data import BadImageError, DataConfig, DataNotFoundError, build_data, train_loader

from .image_files import speckle


def write_shard(path: Path, samples: list[tuple[str, bytes, str | None]], *, mode: str = "w") -> None:
    """Samples are (key, image bytes, label or None)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for key, content, label in samples:
            for name, data in ((f"{key}.png", content), (f"{key}.cls", None if label is None else label.encode())):
                if data is not None:
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def png(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(speckle(9, 13, seed=seed)).save(file, "PNG")
    return file.getvalue()


def build(path, **options):
    config = DataConfig(name="webdataset", path=str(path), crop_pct=1.0, batch_size=2, **options)
    return config, build_data(config, img_size=(9, 13), in_chans=3, seed=0)


@pytest.fixture
def shards(tmp_path):
    """Two training shards of three samples and a validation shard of two."""
    write_shard(tmp_path / "train-08.tar", [(f"a/{n:03d}", png(n), str(n % 2)) for n in range(3)])
    write_shard(tmp_path / "train-09.tar", [(f"a/{n:03d}", png(n), str(n % 2)) for n in range(3, 6)])
    write_shard(tmp_path / "val-00.tar", [(f"v{n}", png(50 + n), str(n)) for n in range(2)])
    return tmp_path


@pytest.mark.parametrize("form", ["folder", "braces", "glob", "list"])
def test_every_way_to_name_shards(shards, form):
    forms = {
        "folder": (str(shards), None),
        "braces": (f"{shards}/train-{{08..09}}.tar", f"{shards}/val-00.tar"),
        "glob": (f"{shards}/train-*.tar", f"{shards}/val-*.tar"),
        "list": (f"{shards}/train-08.tar::{shards}/train-09.tar", f"{shards}/val-00.tar"),
    }
    path, val_path = forms[form]
    config, bundle = build(path, val_path=val_path)
    assert bundle.class_names == ["0", "1"]
    assert list(bundle.train.labels) == [0, 1, 0, 1, 0, 1]
    assert list(bundle.val.labels) == [0, 1]
    for index in range(6):
        np.testing.assert_array_equal(bundle.train[index][0].numpy(), speckle(9, 13, seed=index).transpose(2, 0, 1))
    assert sum(len(labels) for _, labels in train_loader(bundle, config, seed=0)) == 6


def test_class_names_from_a_listing(shards):
    (shards / "classes.txt").write_text("cat\ndog\nemu\n")
    with pytest.warns(UserWarning, match="1 of 3 classes have no (training|validation) image: emu"):
        _, bundle = build(shards)
    assert bundle.class_names == ["cat", "dog", "emu"]
    assert list(bundle.val.labels) == [0, 1]


def test_labels_may_be_names_and_a_share_is_held_out(tmp_path):
    names = ["b10", "b9"] * 5
    write_shard(tmp_path / "all.tar", [(f"{n}", png(n), name) for n, name in enumerate(names)])
    _, bundle = build(tmp_path / "all.tar")
    assert bundle.class_names == ["b9", "b10"]
    assert (len(bundle.train), len(bundle.val)) == (8, 2)


def test_a_broken_member_is_named(tmp_path):
    write_shard(tmp_path / "all.tar", [(f"k{n}", b"no image", str(n % 2)) for n in range(4)])
    config, bundle = build(tmp_path / "all.tar")
    with pytest.raises(BadImageError, match=r"cannot read image .*all\.tar:k\d\.png"):
        list(train_loader(bundle, config, seed=0))


def test_a_sample_without_label_is_named(tmp_path):
    write_shard(tmp_path / "all.tar", [("k0", png(0), "0"), ("k1", png(1), None)])
    with pytest.raises(DataNotFoundError, match=r"k1\.png has no label \(k1\.cls\)"):
        build(tmp_path / "all.tar")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("train-{07..09}.tar", r"no shard .*train-07\.tar"),
        ("packed.tar.gz", "expected an uncompressed tar"),
        ("cut.tar", r"cannot read shard .*cut\.tar"),
    ],
)
def test_missing_packed_and_cut_off_shards(shards, path, message):
    write_shard(shards / "packed.tar.gz", [("k", png(0), "0")], mode="w:gz")
    (shards / "cut.tar").write_bytes((shards / "train-08.tar").read_bytes()[:700])
    with pytest.raises(DataNotFoundError, match=message):
        build(shards / path)


def test_streams_are_refused():
    with pytest.raises(DataNotFoundError, match="shards are read at random and must be files"):
        build("https://example.org/train-{0..9}.tar")
