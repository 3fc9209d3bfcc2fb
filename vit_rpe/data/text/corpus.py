"""Where text comes from: the sources of Python's own standard library, or any folder of text files.

The standard library is on every machine that runs this package, so a language model needs no download. Its
text is that of the running Python, so numbers compare within one version only. Left out are parts that some
installations do not have, tests, and tables: the folders in ``LEFT_OUT``, wherever they lie.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vit_rpe.data.draws import key_number
from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.text.config import TextData

__all__ = ["LIBRARY_CLASSES", "TextFile", "class_of", "corpus", "held_out", "library_files", "text_files"]

LEFT_OUT = {
    *("test", "tests", "site-packages", "dist-packages", "__pycache__", "__phello__"),
    *("distutils", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtledemo"),
    *("encodings", "pydoc_data"),
}
LIBRARY_CLASSES = ("asyncio", "email", "importlib", "multiprocessing", "unittest", "xml")
"""Packages of the standard library with many files, the classes of ``text_classes`` without a path."""


@dataclass(frozen=True)
class TextFile:
    """``name`` is the path below the corpus folder with forward slashes: the same on every machine."""

    name: str
    path: Path

    def read(self) -> str:
        """The text; bytes that are not UTF-8 become U+FFFD, line ends become one newline."""
        return self.path.read_text(encoding="utf-8", errors="replace")


def corpus(config: TextData) -> list[TextFile]:
    """The files that ``config`` names: below ``path``, or those of the standard library."""
    return library_files() if config.path is None else text_files(config.path)


def library_files() -> list[TextFile]:
    """The Python files of the standard library, by name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return _checked([file for file in _below(root, "*.py") if not file.name.startswith("_sysconfigdata")], str(root))


def text_files(path: str) -> list[TextFile]:
    """All files below a folder (hidden ones not), or the one file ``path``.

    Raises:
        DataNotFoundError: there are none.
    """
    root = Path(path)
    if root.is_file():
        return [TextFile(root.name, root)]
    return _checked(list(_below(root, "*")), path)


def class_of(file: TextFile) -> str | None:
    """The first folder of a file's name; None for a file that lies in no folder."""
    folder, slash, _ = file.name.partition("/")
    return folder if slash else None


def held_out(
    files: list[TextFile], share: float, *, seed: int, key: str = "split"
) -> tuple[list[TextFile], list[TextFile]]:
    """Split by file: the rest, and about ``share`` of the files. A file's side depends on its name and seed
    alone.
    """
    sides: tuple[list[TextFile], list[TextFile]] = ([], [])
    for file in files:
        sides[key_number(key, seed, file.name) / 2**128 < share].append(file)
    return sides


def _below(root: Path, pattern: str) -> Iterator[TextFile]:
    for path in sorted(root.rglob(pattern)):
        parts = path.relative_to(root).parts
        if path.is_file() and not LEFT_OUT & set(parts) and not any(part.startswith(".") for part in parts):
            yield TextFile("/".join(parts), path)


def _checked(files: list[TextFile], path: str) -> list[TextFile]:
    if not files:
        raise DataNotFoundError(f"no text files at {path!r}")
    return files
