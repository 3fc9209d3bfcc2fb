"""Where text comes from: the sources of Python's own standard library, or any folder of text files.

The standard library is on every machine that runs this package, so a language model needs no download. Its
text is that of the running Python, so numbers compare within one version only. Left out of it (and of nothing else) are
parts that some installations do not have, tests, and tables: the folders in ``LEFT_OUT``, wherever they lie.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vit_rpe.data.account import Account
from vit_rpe.data.classes import natural_order
from vit_rpe.data.draws import key_number
from vit_rpe.data.errors import DataNotFoundError, printable
from vit_rpe.data.sources.decoding import read_text
from vit_rpe.data.sources.splits import apart, split_of
from vit_rpe.data.text.config import TextData

__all__ = ["LIBRARY_CLASSES", "Corpus", "TextFile", "class_of", "corpus", "held_out", "library_files", "text_files"]

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
        """The text, line ends as one newline. Raises ``DataNotFoundError`` for a file that is no text."""
        return read_text(self.path)


@dataclass(frozen=True)
class Corpus:
    """``val`` None: hold out a share of ``train``. ``held_out``: ``"validation"`` or ``"test"``, what ``val`` is."""

    train: list[TextFile]
    val: list[TextFile] | None
    held_out: str
    account: Account


def corpus(config: TextData) -> Corpus:
    """The files that ``config`` names: below ``path``, where folders or files called train, val or test are splits; or
    those of the standard library.

    Raises:
        DataNotFoundError: there are none.
        ValueError: the folder can be read in two ways.
    """
    account = Account()
    files = library_files() if config.path is None else text_files(config.path, account)
    if config.val_path is not None:
        val = text_files(config.val_path, account)
        return Corpus(_apart(files, val, config, account), val, "validation", account)
    if config.path is None:
        return Corpus(files, None, "test", account)
    splits: dict[str | None, list[TextFile]] = {"train": [], "val": [], "test": [], None: []}
    for file in files:
        top, slash, rest = file.name.partition("/")
        role = split_of(top if slash else Path(top).stem)
        splits[role].append(TextFile(rest, file.path) if slash and role else file)
    held = next((role for role in ("val", "test") if splits[role]), None)
    if held and splits["train"] and not splits[None]:
        if held == "val":
            account.leave_out("files of another split", f"{config.path}/test", len(splits["test"]))
        train = _apart(splits["train"], splits[held], config, account)
        return Corpus(train, splits[held], "test" if held == "test" else "validation", account)
    if held and config.name == "text_classes":
        names = natural_order({file.name.partition("/")[0] for file in files})
        raise ValueError(
            f"{config.path} can be read in two ways: {', '.join(names[:9])} are classes, or some of them are splits; "
            "rename those that are no splits, or move the classes into train/ and val/"
        )
    return Corpus(files, None, "validation", account)


def _apart(train: list[TextFile], val: list[TextFile], config: TextData, account: Account) -> list[TextFile]:
    mine, theirs = ([str(file.path) for file in side] for side in (train, val))
    kept = set(apart(mine, theirs, account, what=f"data.path={config.path!r}"))
    return [file for file in train if str(file.path) in kept]


def library_files() -> list[TextFile]:
    """The Python files of the standard library, by name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [file for file in _below(root, "*.py", LEFT_OUT) if not file.name.startswith("_sysconfigdata")]
    return _checked(files, str(root))


def text_files(path: str, account: Account) -> list[TextFile]:
    """All files below a folder (hidden ones not), or the one file ``path``.

    Raises:
        DataNotFoundError: there are none.
    """
    root = Path(path)
    if root.is_file():
        return [TextFile(root.name, root)]
    hidden = [place for place in root.rglob(".*") if place.is_file()]
    account.leave_out("hidden", printable(hidden[0]) if hidden else "", len(hidden))
    return _checked(list(_below(root, "*", set())), path)


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


def _below(root: Path, pattern: str, left_out: set[str]) -> Iterator[TextFile]:
    for path in sorted(root.rglob(pattern)):
        parts = path.relative_to(root).parts
        if path.is_file() and not left_out & set(parts) and not any(part.startswith(".") for part in parts):
            yield TextFile("/".join(parts), path)


def _checked(files: list[TextFile], path: str) -> list[TextFile]:
    if not files:
        raise DataNotFoundError(f"no text files at {printable(path)!r}")
    return files
