"""Whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from vit_rpe.training.checkpoint.files import newest, remove, write_folder, write_text


def _fill(text: str):
    return lambda place: (place / "content").write_text(text)


def _content(folder: Path) -> str:
    found = newest(folder)
    assert found is not None
    return (found / "content").read_text()


def test_replacing_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "last"
    for text in ("one", "two"):
        write_folder(folder, _fill(text))
        assert _content(folder) == text
    assert [path.name for path in folder.parent.iterdir()] == ["last"]
    write_folder(folder, _fill("three"), keep_old_as=tmp_path / "history" / "2")
    assert _content(tmp_path / "history" / "2") == "two"


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    def failing(place: Path) -> None:
        (place / "content").write_text("half")
        raise OSError("No space left on device")

    folder = tmp_path / "last"
    write_folder(folder, _fill("good"))
    with pytest.raises(OSError, match="No space left"):
        write_folder(folder, failing)
    assert _content(folder) == "good"
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_cut_between_the_renames(tmp_path: Path, monkeypatch, cut: int) -> None:
    folder, count, rename = tmp_path / "last", 0, Path.rename
    write_folder(folder, _fill("old"))

    def cutting(self: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == cut:
            raise SystemExit
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", cutting)
    with pytest.raises(SystemExit):
        write_folder(folder, _fill("new"))
    monkeypatch.setattr(Path, "rename", rename)
    assert _content(folder) == ("new" if cut == 3 else "old")
    write_folder(folder, _fill("newer"))
    assert _content(folder) == "newer"
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_nothing_there(tmp_path: Path) -> None:
    assert newest(tmp_path / "last") is None
    remove(tmp_path / "last")
    write_text(tmp_path / "file", "a")
    write_text(tmp_path / "file", "b")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["b"]
