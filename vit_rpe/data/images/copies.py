"""Images that are on both sides of a split, or in two classes, byte for byte, under names and in files that have
nothing to do with each other. Sizes are compared first, so that of files only those of one size are read."""

from __future__ import annotations

import io
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from vit_rpe.data.sources.base import LabelledImages

__all__ = ["MOST", "between_classes", "copies"]

MOST = 100_000
"""Images looked at; more would make a run wait, and :func:`copies` says that it did not look."""


def copies(train: LabelledImages, val: LabelledImages) -> list[tuple[int, int]] | None:
    """(number in ``train``, number of the first such in ``val``) of the training images that are held out too; None
    where there are more than :data:`MOST`."""
    if len(train.labels) + len(val.labels) > MOST:
        return None
    sides = (_sizes(train), _sizes(val))
    shared = np.intersect1d(*sides)
    mine, theirs = (np.flatnonzero(np.isin(sizes, shared)) for sizes in sides)
    held: dict[bytes, int] = {}
    for index in map(int, theirs):
        held.setdefault(_digest(val, index) or str(index).encode(), index)
    found = ((index, held.get(_digest(train, index))) for index in map(int, mine))
    return [(index, other) for index, other in found if other is not None]


def between_classes(images: LabelledImages) -> list[tuple[int, int]] | None:
    """(number of an image, number of the first such in another class); None where there are more than :data:`MOST`."""
    if len(images.labels) > MOST:
        return None
    _, kinds, counts = np.unique(_sizes(images), return_inverse=True, return_counts=True)
    labels, met, found = images.labels, dict[bytes, int](), []
    for index in map(int, np.flatnonzero(counts[kinds] > 1)):
        first = met.setdefault(_digest(images, index) or str(index).encode(), index)
        if labels[first] != labels[index]:
            found.append((index, first))
    return found


def _sizes(images: LabelledImages) -> np.ndarray:
    """Bytes of every image, -1 where they are not told without reading."""
    told = images.sizes() if hasattr(images, "sizes") else None
    return np.full(len(images.labels), -1, dtype=np.int64) if told is None else told


def _digest(images: LabelledImages, index: int) -> bytes:
    """What tells an image from others; nothing for one that cannot be read, or comes as no bytes."""
    try:
        image: Any = images.image(index)
        if isinstance(image, str):
            image = io.BytesIO(Path(image).read_bytes())
    except (OSError, ValueError):
        return b""
    if isinstance(image, np.ndarray):
        return blake2b(image.tobytes(), digest_size=16, salt=str(image.shape).encode()[:16]).digest()
    return blake2b(image.getbuffer(), digest_size=16).digest() if isinstance(image, io.BytesIO) else b""
