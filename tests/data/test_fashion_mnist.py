"""The IDX reader on files the tests write, and on the real ones where Debian's package has put them."""

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from vit_rpe.data import DataConfig, DataNotFoundError, build_data

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()


def write(folder: Path, *, packed: bool) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    arrays = {}
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 23), ("t10k", 11)):
        arrays[f"{split}-images-idx3-ubyte"] = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{split}-labels-idx1-ubyte"] = np.arange(count, dtype=np.uint8) % 10
    for name, array in arrays.items():
        content = idx(array)
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)
    return arrays


def build(path, **options):
    config = DataConfig(name="fashion_mnist", path=None if path is None else str(path), **options)
    return build_data(config, img_size=(28, 28), in_chans=1, seed=0)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("below", ["", "FashionMNIST/raw"])
def test_reads_every_image_and_label(tmp_path, packed, below):
    arrays = write(tmp_path / below, packed=packed)
    bundle = build(tmp_path)
    for samples, split in ((bundle.train, "train"), (bundle.val, "t10k")):
        images, labels = arrays[f"{split}-images-idx3-ubyte"], arrays[f"{split}-labels-idx1-ubyte"]
        assert len(samples) == len(images)
        for index in range(len(images)):
            image, label = samples[index]
            np.testing.assert_array_equal(image[0], images[index])
            assert label == labels[index]
    assert len(bundle.class_names) == 10


def test_missing_data_says_where_it_looked_and_how_to_get_it(tmp_path):
    with pytest.raises(DataNotFoundError, match=f"no Fashion-MNIST in {tmp_path}.*download.*dataset-fashion-mnist"):
        build(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_off_file_is_no_data(tmp_path, packed):
    write(tmp_path, packed=packed)
    path = next(tmp_path.glob("train-images*"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataNotFoundError, match=r"train-images-idx3-ubyte.* incomplete"):
        build(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path, packed=True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataNotFoundError, match=r"incomplete: no t10k-labels-idx1-ubyte"):
        build(tmp_path)


def test_foreign_bytes_are_refused(tmp_path):
    write(tmp_path, packed=False)
    (tmp_path / "train-labels-idx1-ubyte").write_text("<html>")
    with pytest.raises(DataNotFoundError, match=r"no IDX file of bytes with 1 axes"):
        build(tmp_path)


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
@pytest.mark.parametrize("copied", [False, True])
def test_the_real_files(tmp_path, copied):
    if copied:
        shutil.copytree(DEBIAN, tmp_path / "raw")
    bundle = build(tmp_path / "raw" if copied else None)
    assert (len(bundle.train), len(bundle.val)) == (60_000, 10_000)
    assert np.bincount(bundle.train.labels).tolist() == [6000] * 10
    assert np.bincount(bundle.val.labels).tolist() == [1000] * 10
    pixels = bundle.train.images.images / 255
    assert bundle.preprocessing.mean[0] == pytest.approx(pixels.mean(), abs=5e-4)
    assert bundle.preprocessing.std[0] == pytest.approx(pixels.std(), abs=5e-4)
