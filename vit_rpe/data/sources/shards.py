"""WebDataset shards: tar files in which the members ``key.jpg`` and ``key.cls`` make one sample.

The shards are indexed once (headers and labels are read, pixels are not) and then read at random by position, so order,
splits and resuming are those of any other source. They may lie on several disks: a pattern, a folder, or
several of these with ``::`` between them. The label member ``.cls`` holds a class number or a class name; which of them
is decided on the training labels.

Classes: the lines of a file ``classes.txt`` beside the first shard; else the numbers 0 .. largest label, or
the names found in training.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vit_rpe.data.account import Account
from vit_rpe.data.classes import check_label, class_numbers, natural_order, unique
from vit_rpe.data.errors import DataNotFoundError, printable
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.images.files import identity, is_hidden, is_image
from vit_rpe.data.sources.base import DataSource
from vit_rpe.data.sources.decoding import decode, read_lines
from vit_rpe.data.sources.paths import PathTable, files_below, named_files
from vit_rpe.data.sources.splits import apart, by_split
from vit_rpe.data.sources.statistics import IMAGENET

__all__ = ["webdataset"]

_LABEL_KIND = "cls"
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


@dataclass(frozen=True)
class _ShardImages:
    """Where the bytes of every image lie: shard number, first byte, length; (N,) each."""

    shards: tuple[str, ...]
    shard: np.ndarray
    start: np.ndarray
    length: np.ndarray
    members: PathTable
    labels: np.ndarray

    def image(self, index: int) -> io.BytesIO:
        with open(self.shards[self.shard[index]], "rb") as file:
            file.seek(int(self.start[index]))
            content = file.read(int(self.length[index]))
        if len(content) != self.length[index]:
            raise ValueError(f"the shard ends after {len(content)} of {self.length[index]} bytes")
        return io.BytesIO(content)

    def name(self, index: int) -> str:
        return printable(f"{self.shards[self.shard[index]]}:{self.members[index]}")

    def sizes(self) -> np.ndarray:
        """Bytes of every image (N,)."""
        return self.length


@dataclass(frozen=True)
class _Entry:
    shard: int
    start: int
    length: int
    member: str
    label: str


def webdataset(config: ImageData) -> DataSource:
    """The shards of ``path`` and ``val_path``; without ``val_path``, those that are called val*, valid* or test*,
    or a held-out share."""
    if config.path is None:
        raise DataNotFoundError("data.name=webdataset needs --data.path, such as shards/train-{0000..0099}.tar")
    account = Account()
    given = [path for path, _ in _expand(config.val_path, "data.val_path")] if config.val_path else []
    train_shards, val_shards, word = by_split(_expand(config.path, "data.path"), account, given=bool(given))
    val_shards = given or val_shards
    train_shards = apart(train_shards, val_shards, account, what=f"data.path={config.path!r}")
    if not train_shards:
        raise DataNotFoundError(f"data.path={printable(config.path)!r} names no training shard")
    train = _index(train_shards, account, "training")
    classes = _Classes(Path(train_shards[0]).parent / "classes.txt", [entry.label for entry in train])
    mean, std = IMAGENET
    return DataSource(
        train=_images(train_shards, train, classes, "training"),
        val=_images(val_shards, _index(val_shards, account, word), classes, word) if val_shards else None,
        class_names=classes.names,
        mean=mean,
        std=std,
        crop_pct=0.9,
        held_out=word,
        account=account,
    )


def _expand(patterns: str, option: str) -> list[tuple[str, str]]:
    """Paths that ``patterns`` name, in order, for ``by_split``; every number of a ``{a..b}`` range must exist."""
    if "://" in patterns or patterns.startswith("pipe:"):
        raise DataNotFoundError(f"{patterns!r}: shards are read at random and must be files (a mounted disk is fine)")
    found: list[tuple[str, str]] = []
    for word in [patterns] if os.path.exists(patterns) else patterns.split("::"):
        for path in [word] if os.path.exists(word) else _ranges(word):
            matches = dict(files_below(path, ".tar") if os.path.isdir(path) else named_files(path))
            if not matches:
                raise DataNotFoundError(f"no shard {printable(path)} (from {printable(patterns)!r})")
            found += [(match, matches[match]) for match in natural_order(matches)]
    once: set[int] = set()
    for path, _ in found:
        if identity(path) in once:
            raise ValueError(f"{option}={printable(patterns)!r} names the shard {printable(path)} twice")
        once.add(identity(path))
    return found


def _ranges(pattern: str) -> list[str]:
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last = match.groups()
    numbers = [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return [rest for number in numbers for rest in _ranges(pattern[: match.start()] + number + pattern[match.end() :])]


def _index(shards: list[str], account: Account, split: str) -> list[_Entry]:
    entries: list[_Entry] = []
    for number, shard in enumerate(shards):
        try:
            with tarfile.open(shard, "r:") as archive:
                entries += _entries(archive, number, printable(shard), account)
        except (OSError, EOFError, tarfile.TarError) as error:
            raise DataNotFoundError(
                f"cannot read shard {printable(shard)}: {error}; expected an uncompressed tar"
            ) from error
    if not entries:
        raise DataNotFoundError(
            f"no {split} sample in {printable(shards[0])}{' ...' * (len(shards) > 1)}: a sample is KEY.{_LABEL_KIND} "
            f"and an image KEY.png ..., where KEY ends at the first dot of the name; {account.left()}"
        )
    return entries


def _entries(archive: tarfile.TarFile, number: int, shard: str, account: Account) -> list[_Entry]:
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, str] = {}
    for member in archive:
        folder, _, base = member.name.rpartition("/")
        stem, _, kind = base.partition(".")
        key, where = f"{folder}/{stem}", f"{shard}:{printable(member.name)}"
        if not member.isfile():
            continue
        if is_hidden(base):
            account.leave_out("hidden", where)
        elif kind.lower() == _LABEL_KIND:
            _once(key, labels, where)
            content = archive.extractfile(member)
            labels[key] = decode(content.read(), where).strip() if content else ""
            check_label(int(labels[key]) if labels[key].isdecimal() else labels[key], where)
        elif is_image(base) and "." not in kind:
            _once(key, images, where)
            images[key] = member
        else:
            account.leave_out(f"neither KEY.{_LABEL_KIND} nor an image KEY.png ... without a dot in KEY", where)
    for key, member in images.items():
        if key not in labels:
            raise DataNotFoundError(f"shard {shard}: {member.name} has no label ({key.strip('/')}.{_LABEL_KIND})")
    for key in sorted(labels.keys() - images.keys()):
        account.leave_out("labels without an image", f"{shard}:{printable(key.strip('/'))}.{_LABEL_KIND}")
    return [_Entry(number, m.offset_data, m.size, m.name, labels[key]) for key, m in images.items()]


def _once(key: str, found: dict, where: str) -> None:
    if key in found:
        raise ValueError(f"{where}: the key {printable(key.strip('/'))!r} is there twice in one shard")


class _Classes:
    """The names of the classes, and whether labels are their numbers; both decided on the training labels."""

    def __init__(self, listing: Path, labels: list[str]):
        self.numbers = all(label.isdecimal() for label in labels)
        listed = unique(read_lines(listing), printable(listing)) if listing.is_file() else None
        if listed is not None and self.numbers and set(labels) <= set(listed):
            by_number = all(int(label) < len(listed) and listed[int(label)] == label for label in labels)
            if not by_number and all(int(label) < len(listed) for label in labels):
                raise ValueError(
                    f"the labels {', '.join(natural_order(set(labels))[:5])} are both names and line numbers of "
                    f"{printable(listing)}: give the classes names that are no numbers"
                )
            self.numbers = by_number
        if listed is not None:
            self.names = listed
        elif self.numbers:
            self.names = [str(number) for number in range(max(map(int, labels), default=-1) + 1)]
        else:
            self.names = natural_order(set(labels))

    def named(self, labels: list[str], split: str) -> list[str]:
        """The class name of every label."""
        if not self.numbers:
            return labels
        for label in labels:
            if not label.isdecimal() or int(label) >= len(self.names):
                raise ValueError(
                    f"{split} has the label {label!r}, which training does not have: there labels are numbers, 0 to "
                    f"{len(self.names) - 1}"
                )
        return [self.names[int(label)] for label in labels]


def _images(shards: list[str], entries: list[_Entry], classes: _Classes, split: str) -> _ShardImages:
    names = classes.named([entry.label for entry in entries], split)
    return _ShardImages(
        shards=tuple(shards),
        shard=np.array([entry.shard for entry in entries], dtype=np.int64),
        start=np.array([entry.start for entry in entries], dtype=np.int64),
        length=np.array([entry.length for entry in entries], dtype=np.int64),
        members=PathTable(entry.member for entry in entries),
        labels=class_numbers(names, classes.names, split=split),
    )
