"""What every data source gives: labelled images by number, and what is known about the set as a whole.

N is the number of images.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from vit_rpe.data.account import Account
from vit_rpe.data.errors import printable
from vit_rpe.data.sources.paths import PathTable

__all__ = ["ArrayImages", "DataSource", "FileImages", "LabelledImages", "SubsetImages"]


class LabelledImages(Protocol):
    """Random access to N images; picklable, so that loader processes can hold it."""

    @property
    def labels(self) -> np.ndarray:
        """(N,) int64 class numbers."""

    def image(self, index: int) -> Any:
        """Image ``index`` as anything ``Preprocessing`` takes: array, path, binary file, Pillow image."""

    def name(self, index: int) -> str:
        """Where image ``index`` comes from, for messages."""


@dataclass(frozen=True)
class ArrayImages:
    """Images held in memory: ``images`` (N, h, w) or (N, h, w, C) uint8."""

    images: np.ndarray
    labels: np.ndarray
    origin: str

    def image(self, index: int) -> np.ndarray:
        return self.images[index]

    def name(self, index: int) -> str:
        return f"{self.origin}[{index}]"


@dataclass(frozen=True)
class FileImages:
    """One file per image."""

    paths: PathTable
    labels: np.ndarray

    def image(self, index: int) -> str:
        return self.paths[index]

    def name(self, index: int) -> str:
        return printable(self.paths[index])

    def sizes(self) -> np.ndarray:
        """Bytes of every file (N,), -1 where there is none."""
        paths = map(self.paths.__getitem__, range(len(self.paths)))
        return np.fromiter(map(_bytes_of, paths), dtype=np.int64, count=len(self.paths))


def _bytes_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return -1


@dataclass(frozen=True)
class SubsetImages:
    """The images ``indices`` (M,) of another set, in that order."""

    whole: LabelledImages
    indices: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        return self.whole.labels[self.indices]

    def image(self, index: int) -> Any:
        return self.whole.image(int(self.indices[index]))

    def name(self, index: int) -> str:
        return self.whole.name(int(self.indices[index]))

    def sizes(self) -> np.ndarray | None:
        """Bytes of every image (M,), where the other set tells them."""
        whole = self.whole.sizes() if hasattr(self.whole, "sizes") else None
        return None if whole is None else whole[self.indices]


@dataclass(frozen=True)
class DataSource:
    """A whole data set. ``val`` None means: hold out a share of ``train``.

    ``mean`` and ``std`` are on the 0..1 scale; ``crop_pct`` and ``interpolation`` are the evaluation
    defaults. ``held_out`` says what ``val`` is: ``"test"`` for a published or named test set, else
    ``"validation"``. ``account``: what was met and left out. ``same`` (N,): equal where training images are one file,
    so that none of them is held out from itself; None where images cannot be.
    """

    train: LabelledImages
    val: LabelledImages | None
    class_names: list[str]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float = 1.0
    interpolation: str = "bicubic"
    held_out: str = "validation"
    account: Account = field(default_factory=Account)
    same: np.ndarray | None = None
