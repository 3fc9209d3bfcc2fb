"""Which folders and files are splits of a data set, by their names, whatever the case and the ending.

``train``, ``Training``, ``train_set``, ``train2017`` are training; ``val``, ``valid``, ``validation``, ``dev`` and
``eval`` validation; ``test``, ``Testing``, ``test_set`` a test. Where a set has validation and test, validation is held
out and the test is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from vit_rpe.data.account import Account
from vit_rpe.data.errors import DataNotFoundError, printable
from vit_rpe.data.images.files import identity

__all__ = ["apart", "by_split", "once", "split_of"]

_WORDS = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val", "eval": "val", "evaluation": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
_NAME = re.compile(rf"({'|'.join(sorted(_WORDS, key=len, reverse=True))})([ _-]?(set|data|dataset|images?|split))?")
_FOLDER_END = re.compile(r"([ _-]?(19|20)\d\d)?")


def split_of(name: str, *, of_file: bool = False) -> str | None:
    """``"train"``, ``"val"`` or ``"test"`` if that is what a folder's name says; None for any other.

    ``of_file``: the name may go on with a number or after a sign: ``train-00001-of-00002.parquet``.
    """
    match = _NAME.match(name.lower())
    if match is None:
        return None
    rest = name.lower()[match.end() :]
    ends = re.match(r"[-_.\d]|$", rest) is not None if of_file else _FOLDER_END.fullmatch(rest) is not None
    return _WORDS[match[1]] if ends else None


def by_split(
    files: Sequence[tuple[str, str]], account: Account, *, given: bool = False
) -> tuple[list[str], list[str], str]:
    """Training files, validation files, and the word of the latter (``"validation"`` or ``"test"``).

    The last part of a path that names a split decides: ``test/0000.parquet``, ``data/train-3.tar``. Files that name
    none are training where none is called so, and else left out.

    Args:
        files: (path, the part of it below the folder searched).
        given: the validation files are named elsewhere; those found here are left out.
    """
    groups: dict[str | None, list[str]] = {"train": [], "val": [], "test": [], None: []}
    for path, below in files:
        *folders, last = Path(below).parts
        roles = [split_of(last, of_file=True), *map(split_of, reversed(folders))]
        groups[next((role for role in roles if role is not None), None)].append(path)
    if not groups["train"]:
        groups["train"], groups[None] = groups[None], []
    if not groups["train"]:  # a pattern that names one split, or several of them, and no other file
        only = [split for split in ("val", "test") if groups[split]]
        if len(only) != 1:
            return [], [], ""
        groups["train"], groups[only[0]] = groups[only[0]], []
    held = None if given else next((split for split in ("val", "test") if groups[split]), None)
    for split, reason in (("val", "validation files"), ("test", "test files"), (None, "files of no split")):
        if split != held and groups[split]:
            account.leave_out(reason, printable(groups[split][0]), len(groups[split]))
    return groups["train"], groups[held] if held else [], "test" if held == "test" else "validation"


def once(files: Iterable[str], account: Account) -> list[str]:
    """The files, each under the first of its names: before some are held out, so that none is on both sides."""
    kept: dict[int, str] = {}
    for path in files:
        if kept.setdefault(identity(path), path) != path:
            account.leave_out("other names of one file", printable(path))
    return list(kept.values())


def apart(train: Iterable[str], val: Iterable[str], account: Account, *, what: str) -> list[str]:
    """The training files that are no validation files, compared by what they are: links of both kinds are known.

    Raises:
        DataNotFoundError: none is left.
    """
    files = list(train)
    held = set(map(identity, val))
    kept = [path for path in files if identity(path) not in held]
    gone = [path for path in files if identity(path) in held]
    if gone:
        account.leave_out("training files that are validation files", printable(gone[0]), len(gone))
    if files and not kept:
        raise DataNotFoundError(f"{what}: every training file is a validation file too, {printable(gone[0])}")
    return kept
