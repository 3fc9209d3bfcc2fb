"""CIFAR-10 and CIFAR-100: 60,000 colour images of 32x32 (A. Krizhevsky, "Learning Multiple Layers of Features
from Tiny Images", 2009), in the "python version" its page offers: the unpacked folder, or the archive as it
is."""

from __future__ import annotations

import pickle
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from vit_rpe.data.classes import unique
from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.sources.base import ArrayImages, DataSource
from vit_rpe.data.sources.fetch import fetch
from vit_rpe.data.sources.plain_pickle import read_plain_pickle
from vit_rpe.data.sources.statistics import CIFAR10, CIFAR100

__all__ = ["cifar10", "cifar100"]


@dataclass(frozen=True)
class _Kind:
    title: str
    folder: str
    archive: str
    train: tuple[str, ...]
    val: str
    meta: str
    label_key: str
    names_key: str


_TEN = _Kind(
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    val="test_batch",
    meta="batches.meta",
    label_key="labels",
    names_key="label_names",
)
_HUNDRED = _Kind(
    title="CIFAR-100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    val="test",
    meta="meta",
    label_key="fine_labels",
    names_key="fine_label_names",
)


_PAGE = "https://www.cs.toronto.edu/~kriz/"


def cifar10(config: ImageData) -> DataSource:
    """Ten classes, 50,000 training and 10,000 test images."""
    return _cifar(config, _TEN, Path("data/cifar10"), CIFAR10)


def cifar100(config: ImageData) -> DataSource:
    """A hundred classes (the fine labels), 50,000 training and 10,000 test images."""
    return _cifar(config, _HUNDRED, Path("data/cifar100"), CIFAR100)


def _cifar(
    config: ImageData, kind: _Kind, default: Path, statistics: tuple[tuple[float, ...], tuple[float, ...]]
) -> DataSource:
    root = Path(config.path) if config.path else default
    with ExitStack() as stack:
        opener = _opener(root, kind, stack)
        if opener is None and config.download:
            by_hand = f"{_PAGE}{kind.archive} into {root} (as it is, packed)"
            fetch(root / kind.folder, lambda workplace: _download(workplace, kind), what=kind.title, by_hand=by_hand)
            opener = _opener(root, kind, stack)
        if opener is None:
            raise DataNotFoundError(
                f"no {kind.title} in {root}: expected {kind.folder}/ or {kind.archive} there; "
                "--data.download true fetches it, or give --data.path"
            )
        parts = [_part(opener, name, kind, root) for name in kind.train]
        val = _part(opener, kind.val, kind, root)
        names = [_text(name) for name in _read(opener, kind.meta, (kind.names_key,), root)[kind.names_key]]
        names = unique(names, f"{root}: {kind.meta}")
    train = ArrayImages(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
        f"{root}: training images",
    )
    return DataSource(train=train, val=val, class_names=names, mean=statistics[0], std=statistics[1], held_out="test")


def _text(name: str | bytes) -> str:
    """A class name, also from a pickle that Python 3 has written again."""
    return name.decode() if isinstance(name, bytes) else str(name)


def _opener(root: Path, kind: _Kind, stack: ExitStack) -> Callable[[str], IO[bytes] | None] | None:
    """How to open a file of the set by name, or None where there is no set."""
    for folder in (root / kind.folder, root):
        if any((folder / name).is_file() for name in (*kind.train, kind.val)):
            return lambda name: open(folder / name, "rb") if (folder / name).is_file() else None
    path = root if root.name == kind.archive else root / kind.archive
    if not path.is_file():
        return None
    try:
        archive = stack.enter_context(tarfile.open(path))  # noqa: SIM115 - the stack closes it
        members = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataNotFoundError(f"{path} is damaged or incomplete: {error}; get it again") from error
    return lambda name: archive.extractfile(members[name]) if name in members else None


def _read(opener: Callable[[str], IO[bytes] | None], name: str, keys: tuple[str, ...], root: Path) -> dict[str, Any]:
    file = opener(name)
    if file is None:
        raise DataNotFoundError(f"{root} is incomplete: no file {name}; get the data again")
    try:
        with file:
            content = read_plain_pickle(file)
        return {key: content[key] for key in keys}
    except (pickle.UnpicklingError, OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise DataNotFoundError(f"{root}: {name} is damaged or incomplete: {error}; get it again") from error


def _part(opener: Callable[[str], IO[bytes] | None], name: str, kind: _Kind, root: Path) -> ArrayImages:
    content = _read(opener, name, ("data", kind.label_key), root)
    pixels, labels = np.asarray(content["data"]), np.asarray(content[kind.label_key], dtype=np.int64)
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3072):
        raise DataNotFoundError(
            f"{root}: {name} has pixels {pixels.dtype} {pixels.shape}, expected uint8 ({len(labels)}, 3072)"
        )
    images = np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return ArrayImages(images, labels, f"{root}: {name}")


def _download(workplace: Path, kind: _Kind) -> Path:
    from torchvision import datasets

    (datasets.CIFAR10 if kind is _TEN else datasets.CIFAR100)(str(workplace), download=True)
    return workplace / kind.folder
