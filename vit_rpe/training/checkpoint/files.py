"""Files that are whole or absent: write beside the place, flush to the disk, then rename.

A folder is replaced in two renames, ``X`` to ``X.old`` and ``X.new`` to ``X``. A process killed between them leaves
no ``X``, but a complete ``X.new`` and a complete ``X.old``; ``newest`` finds them, so a reader always gets a whole
folder. What is still being written has a name that no reader looks at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["newest", "remove", "write_folder", "write_text"]


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if path.is_file():  # some systems cannot flush a folder; a file that cannot be flushed is an error
            raise
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Delete a folder, if it exists."""
    if path.exists():
        shutil.rmtree(path)


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    _flush(part)
    os.replace(part, path)


def newest(folder: Path) -> Path | None:
    """``folder``, or the complete stand-in that a killed replacement left; ``None`` if there is neither."""
    for candidate in (folder, folder.with_name(f"{folder.name}.new"), folder.with_name(f"{folder.name}.old")):
        if candidate.is_dir():
            return candidate
    return None


def write_folder(folder: Path, fill: Callable[[Path], None], *, keep_old_as: Path | None = None) -> None:
    """Replace ``folder`` by one that ``fill`` writes.

    Args:
        folder: the folder to replace or create.
        fill: gets an empty folder and writes the files into it.
        keep_old_as: where the folder replaced goes; ``None`` deletes it.

    Raises:
        OSError: the disk is full or the place cannot be written; what ``folder`` held is untouched.
    """
    part, new, old = (folder.with_name(f"{folder.name}.{end}") for end in ("part", "new", "old"))
    _settle(folder, new, old)
    remove(part)
    part.mkdir(parents=True)
    try:
        fill(part)
        for file in part.iterdir():
            _flush(file)
        _flush(part)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    part.rename(new)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    _flush(folder.parent)
    if keep_old_as is not None and old.exists():
        remove(keep_old_as)
        keep_old_as.parent.mkdir(parents=True, exist_ok=True)
        old.rename(keep_old_as)
    remove(old)


def _settle(folder: Path, new: Path, old: Path) -> None:
    """Finish a replacement that was cut short."""
    survivor = newest(folder)
    if survivor is not None and survivor != folder:
        survivor.rename(folder)
    remove(new)
    remove(old)
