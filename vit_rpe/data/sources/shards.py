"""WebDataset shards: tar files in which the members ``key.jpg`` and ``key.cls`` make one sample.

The shards are indexed once (headers and labels are read, pixels are not) and then read at random by position, so order,
splits and resuming are those of any other source. They may lie on several disks: a pattern, a folder, or
several of these with ``::`` between them. The label member ``.cls`` holds a class number or a class name.

Classes: the lines of a file ``classes.txt`` beside the first shard; else the numbers 0 .. largest label, or
the names found in training.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np

from vit_rpe.data.classes import class_numbers, natural_order
from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.sources.base import DataSource
from vit_rpe.data.sources.paths import PathTable
from vit_rpe.data.sources.statistics import IMAGENET

__all__ = ["webdataset"]

_IMAGE_KINDS = frozenset(["avif", "bmp", "gif", "jpeg", "jpg", "png", "ppm", "tif", "tiff", "webp"])
_LABEL_KIND = "cls"
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_VAL_PATTERNS = ("val*.tar", "valid*.tar", "test*.tar")


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
        return f"{self.shards[self.shard[index]]}:{self.members[index]}"


@dataclass(frozen=True)
class _Entry:
    shard: int
    start: int
    length: int
    member: str
    label: str


def webdataset(config: ImageData) -> DataSource:
    """The shards of ``path`` and ``val_path``; without ``val_path``, the shards called val*, valid* or test*
    of a folder, or a held-out share."""
    if config.path is None:
        raise DataNotFoundError("data.name=webdataset needs --data.path, such as shards/train-{0000..0099}.tar")
    val_shards = _expand(config.val_path) if config.val_path else _val_of_folder(config.path)
    shards = tuple(shard for shard in _expand(config.path) if shard not in val_shards)
    train = _index(shards)
    class_names = _class_names(Path(shards[0]).parent / "classes.txt", [entry.label for entry in train])
    mean, std = IMAGENET
    return DataSource(
        train=_images(shards, train, class_names, "training"),
        val=_images(val_shards, _index(val_shards), class_names, "validation") if val_shards else None,
        class_names=class_names,
        mean=mean,
        std=std,
        crop_pct=0.9,
    )


def _expand(patterns: str) -> tuple[str, ...]:
    """Paths that ``patterns`` name, in order; every written-out number of a ``{a..b}`` range must exist."""
    if "://" in patterns or patterns.startswith("pipe:"):
        raise DataNotFoundError(f"{patterns!r}: shards are read at random and must be files (a mounted disk is fine)")
    found: list[str] = []
    for pattern in patterns.split("::"):
        if os.path.isdir(pattern):
            pattern = os.path.join(pattern, "*.tar")
        for path in _ranges(pattern):
            matches = natural_order(glob(path))
            if not matches:
                raise DataNotFoundError(f"no shard {path} (from {patterns!r})")
            found += matches
    return tuple(found)


def _ranges(pattern: str) -> list[str]:
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last = match.groups()
    numbers = [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return [rest for number in numbers for rest in _ranges(pattern[: match.start()] + number + pattern[match.end() :])]


def _val_of_folder(patterns: str) -> tuple[str, ...]:
    for pattern in _VAL_PATTERNS:
        for place in patterns.split("::"):
            if os.path.isdir(place) and glob(os.path.join(place, pattern)):
                return tuple(natural_order(glob(os.path.join(place, pattern))))
    return ()


def _index(shards: tuple[str, ...]) -> list[_Entry]:
    entries: list[_Entry] = []
    for number, shard in enumerate(shards):
        try:
            with tarfile.open(shard, "r:") as archive:
                entries += _entries(archive, number, shard)
        except (OSError, EOFError, tarfile.TarError) as error:
            raise DataNotFoundError(f"cannot read shard {shard}: {error}; expected an uncompressed tar") from error
    return entries


def _entries(archive: tarfile.TarFile, number: int, shard: str) -> list[_Entry]:
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, str] = {}
    for member in archive:
        folder, _, base = member.name.rpartition("/")
        key, _, kind = base.partition(".")
        if not member.isfile() or not kind:
            continue
        if kind.lower() in _IMAGE_KINDS:
            images[f"{folder}/{key}"] = member
        elif kind == _LABEL_KIND:
            content = archive.extractfile(member)
            labels[f"{folder}/{key}"] = content.read().decode().strip() if content else ""
    for key, member in images.items():
        if key not in labels:
            raise DataNotFoundError(f"shard {shard}: {member.name} has no label ({key.strip('/')}.{_LABEL_KIND})")
    return [_Entry(number, m.offset_data, m.size, m.name, labels[key]) for key, m in images.items()]


def _class_names(listing: Path, labels: list[str]) -> list[str]:
    if listing.is_file():
        return listing.read_text().splitlines()
    if labels and all(label.isdecimal() for label in labels):
        return [str(number) for number in range(max(map(int, labels)) + 1)]
    return natural_order(set(labels))


def _images(shards: tuple[str, ...], entries: list[_Entry], class_names: list[str], split: str) -> _ShardImages:
    names = [entry.label for entry in entries]
    if names and all(name.isdecimal() and int(name) < len(class_names) for name in names):
        names = [class_names[int(name)] for name in names]
    return _ShardImages(
        shards=shards,
        shard=np.array([entry.shard for entry in entries], dtype=np.int64),
        start=np.array([entry.start for entry in entries], dtype=np.int64),
        length=np.array([entry.length for entry in entries], dtype=np.int64),
        members=PathTable(entry.member for entry in entries),
        labels=class_numbers(names, class_names, split=split),
    )
