"""CIFAR readers on small archives in the true formats, and pickles that want to run code."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from vit_rpe.data import DataConfig, DataNotFoundError, build_data

TEN_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def rows(count: int, seed: int) -> np.ndarray:
    """(count, 3072) uint8: red, green, blue planes of 32 rows of 32."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def dump(path: Path, content: dict, *, python2: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    keyed = {key.encode(): value for key, value in content.items()} if python2 else content
    path.write_bytes(pickle.dumps(keyed, protocol=2))


def write_ten(root: Path, *, python2: bool = True) -> dict[str, dict]:
    folder = root / "cifar-10-batches-py"
    parts = {
        f"data_batch_{n}": {"data": rows(4 + n, n), "labels": [(n + i) % 10 for i in range(4 + n)]} for n in range(1, 6)
    }
    parts["test_batch"] = {"data": rows(10, 9), "labels": list(range(10))}
    for name, part in parts.items():
        dump(
            folder / name, {"batch_label": name, **part, "filenames": ["x.png"] * len(part["labels"])}, python2=python2
        )
    dump(folder / "batches.meta", {"label_names": TEN_NAMES, "num_cases_per_batch": 10}, python2=python2)
    return parts


def write_hundred(root: Path) -> dict[str, dict]:
    folder = root / "cifar-100-python"
    parts = {}
    for name, count in (("train", 130), ("test", 100)):
        fine = [index % 100 for index in range(count)]
        parts[name] = {"data": rows(count, count), "fine_labels": fine, "coarse_labels": [n // 5 for n in fine]}
        dump(folder / name, parts[name], python2=True)
    dump(
        folder / "meta",
        {"fine_label_names": [f"fine{n}" for n in range(100)], "coarse_label_names": ["c"] * 20},
        python2=True,
    )
    return parts


def pack(root: Path, folder: str, archive: str) -> None:
    import shutil

    with tarfile.open(root / archive, "w:gz") as tar:
        tar.add(root / folder, folder)
    shutil.rmtree(root / folder)


def build(name, path, **options):
    config = DataConfig(name=name, path=str(path), **options)
    return build_data(config, img_size=(32, 32), in_chans=3, seed=0)


def check(samples, data, labels):
    assert len(samples) == len(labels)
    for index in range(len(labels)):
        image, label = samples[index]
        assert label == labels[index]
        np.testing.assert_array_equal(image.numpy(), data[index].reshape(3, 32, 32))


@pytest.mark.parametrize("python2", [False, True])
@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
def test_ten_from_a_folder(tmp_path, python2, below):
    parts = write_ten(tmp_path, python2=python2)
    bundle = build("cifar10", tmp_path / below)
    train = [parts[f"data_batch_{n}"] for n in range(1, 6)]
    check(bundle.train, np.concatenate([p["data"] for p in train]), [x for p in train for x in p["labels"]])
    check(bundle.val, parts["test_batch"]["data"], parts["test_batch"]["labels"])
    assert bundle.class_names == TEN_NAMES


@pytest.mark.parametrize("direct", [False, True])
def test_hundred_from_the_archive_as_it_is(tmp_path, direct):
    parts = write_hundred(tmp_path)
    pack(tmp_path, "cifar-100-python", "cifar-100-python.tar.gz")
    bundle = build("cifar100", tmp_path / "cifar-100-python.tar.gz" if direct else tmp_path)
    check(bundle.train, parts["train"]["data"], parts["train"]["fine_labels"])
    check(bundle.val, parts["test"]["data"], parts["test"]["fine_labels"])
    assert bundle.class_names[7] == "fine7"


def test_missing_data_says_how_to_get_it(tmp_path):
    with pytest.raises(DataNotFoundError, match=rf"no CIFAR-10 in {tmp_path}.*--data\.download true"):
        build("cifar10", tmp_path)


def test_a_missing_part_is_named(tmp_path):
    write_ten(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(DataNotFoundError, match=r"incomplete: no file data_batch_3"):
        build("cifar10", tmp_path)


def test_a_cut_off_part_is_named(tmp_path):
    write_ten(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_2"
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataNotFoundError, match=r"data_batch_2 is damaged or incomplete"):
        build("cifar10", tmp_path)


def test_a_cut_off_archive_is_named(tmp_path):
    write_ten(tmp_path)
    pack(tmp_path, "cifar-10-batches-py", "cifar-10-python.tar.gz")
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(DataNotFoundError, match=r"cifar-10-python\.tar\.gz is damaged or incomplete"):
        build("cifar10", tmp_path)


class _Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_never_runs_code(tmp_path):
    write_ten(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({"data": _Attack(tmp_path / "ran")}))
    with pytest.raises(DataNotFoundError, match="which no data file needs"):
        build("cifar10", tmp_path)
    assert not (tmp_path / "ran").exists()


def test_rows_of_another_length_are_refused(tmp_path):
    write_ten(tmp_path)
    part = {"data": rows(3, 0)[:, :3000], "labels": [0, 1, 2]}
    dump(tmp_path / "cifar-10-batches-py" / "test_batch", part, python2=True)
    with pytest.raises(DataNotFoundError, match=r"test_batch has pixels uint8 \(3, 3000\), expected uint8 \(3, 3072\)"):
        build("cifar10", tmp_path)


def test_names_of_a_pickle_written_again_by_python_3(tmp_path):
    """Loaded with ``encoding="bytes"`` and saved again, as many scripts do: names are bytes."""
    write_ten(tmp_path)
    meta = {b"label_names": [name.encode() for name in TEN_NAMES], b"num_cases_per_batch": 10}
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(pickle.dumps(meta))
    assert build("cifar10", tmp_path).class_names == TEN_NAMES
