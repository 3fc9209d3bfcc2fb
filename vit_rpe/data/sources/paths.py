"""Paths: as text for people, as patterns, and many of them in little memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from glob import escape, glob
from pathlib import Path

import numpy as np

__all__ = ["PathTable", "files_below", "named_files"]


def named_files(word: str) -> list[tuple[str, str]]:
    """What a path or pattern names, as (path, its part below the folder that exists). A path that exists is that path,
    whatever signs it holds; only what does not exist is a pattern."""
    if os.path.exists(word):
        return [(word, os.path.basename(word))]
    fixed = Path(word).parent
    while not fixed.exists():
        fixed = fixed.parent
    pattern = os.path.join(escape(str(fixed)), os.path.relpath(word, fixed))
    return [(path, os.path.relpath(path, fixed)) for path in sorted(glob(pattern, recursive=True))]


def files_below(folder: str, ending: str) -> Iterator[tuple[str, str]]:
    """(path, path below ``folder``) of the files with this ending, sorted; hidden ones are no files of a set, links to
    folders are followed, but not in a circle."""
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        here = os.path.realpath(place)
        folders[:] = [] if here in seen else sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files) if here not in seen else []:
            if name.endswith(ending) and not name.startswith("."):
                path = os.path.join(place, name)
                yield path, os.path.relpath(path, folder)
        seen.add(here)


class PathTable:
    """Paths as one block of bytes: a million string objects would be copied into every forked loader process,
    page by page, as their reference counts change."""

    def __init__(self, paths: Iterable[str]):
        encoded = [os.fsencode(path) for path in paths]
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([len(path) for path in encoded], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        start = self._ends[index - 1] if index else 0
        return os.fsdecode(self._bytes[start : self._ends[index]].tobytes())
