"""An interrupted download never leaves a folder that passes for whole."""

import pytest

from vit_rpe.data import DataConfig, DataNotFoundError, build_data
from vit_rpe.data.sources.fetch import fetch

from .test_cifar import write_ten


def two_files(workplace):
    (workplace / "set").mkdir()
    (workplace / "set" / "a").write_text("a")
    (workplace / "set" / "b").write_text("b")
    return workplace / "set"


def test_the_folder_appears_complete(tmp_path):
    fetch(tmp_path / "deep" / "data", two_files, what="a set", by_hand="a.zip from b to c")
    assert sorted(path.name for path in (tmp_path / "deep" / "data").iterdir()) == ["a", "b"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["data"]


@pytest.mark.parametrize("failure", [OSError("connection lost"), RuntimeError("wrong checksum"), KeyboardInterrupt()])
def test_or_not_at_all(tmp_path, failure):
    def broken(workplace):
        two_files(workplace)
        raise failure

    expected = KeyboardInterrupt if isinstance(failure, KeyboardInterrupt) else DataNotFoundError
    words = None if expected is KeyboardInterrupt else "By hand: a.zip from b to c"
    with pytest.raises(expected, match=words):
        fetch(tmp_path / "data", broken, what="a set", by_hand="a.zip from b to c")
    assert list(tmp_path.iterdir()) == []


def test_another_process_may_be_faster(tmp_path):
    def slow(workplace):
        two_files(tmp_path).rename(tmp_path / "data")
        return two_files(workplace)

    fetch(tmp_path / "data", slow, what="a set", by_hand="a.zip from b to c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_cifar_is_fetched_through_torchvision_into_place(tmp_path, monkeypatch):
    from torchvision import datasets

    asked = []

    def stand_in(root, download):
        from pathlib import Path

        asked.append(download)
        write_ten(Path(root))

    monkeypatch.setattr(datasets, "CIFAR10", stand_in)
    config = DataConfig(name="cifar10", path=str(tmp_path / "here"), download=True)
    for _ in range(2):
        bundle = build_data(config, img_size=(32, 32), in_chans=3, seed=0)
    assert asked == [True]  # the second time it is there
    assert len(bundle.val) == 10
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["cifar-10-batches-py"]
