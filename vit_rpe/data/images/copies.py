"""Images that are on both sides of a split, or in two classes, byte for byte, under names and in files that have
nothing to do with each other. Sizes are compared first, then the last kilobyte; only what agrees in both is read."""

from __future__ import annotations

import io
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from vit_rpe.data.sources.base import LabelledImages

__all__ = ["MOST", "between_classes", "copies"]

END = 1024
"""Bytes at the end of a file that are compared before the whole."""
MOST = 100_000
"""Images looked at; more would make a run wait, and :func:`copies` says that it did not look."""


def copies(train: LabelledImages, val: LabelledImages) -> list[tuple[int, int]] | None:
    """(number in ``train``, number of the first such in ``val``) of the training images that are held out too; None
    where there are more than :data:`MOST`."""
    if len(train.labels) + len(val.labels) > MOST:
        return None
    sides = (_sizes(train), _sizes(val))
    shared = np.intersect1d(*sides)
    mine, theirs = (list(map(int, np.flatnonzero(np.isin(sizes, shared)))) for sizes in sides)
    for look in (_end, _digest):  # the ends of files tell most apart, and few bytes are read for them
        keys = {index: look(val, index) for index in theirs}
        held: dict[bytes, int] = {}
        for index, key in keys.items():
            if key:
                held.setdefault(key, index)
        pairs = [(index, held[key]) for index in mine if (key := look(train, index)) in held]
        ends = {keys[other] for _, other in pairs}
        mine, theirs = [index for index, _ in pairs], [index for index, key in keys.items() if key in ends]
    return pairs


def between_classes(images: LabelledImages) -> list[tuple[int, int]] | None:
    """(number of an image, number of the first such in another class); None where there are more than :data:`MOST`."""
    if len(images.labels) > MOST:
        return None
    sizes, labels = _sizes(images), images.labels
    _, kinds, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    alike = list(map(int, np.flatnonzero(counts[kinds] > 1)))
    for look in (_end, _digest):
        groups: dict[bytes, list[int]] = {}
        for index in alike:
            groups.setdefault(look(images, index) or str(index).encode(), []).append(index)
        mixed = [group for group in groups.values() if any(labels[one] != labels[group[0]] for one in group)]
        alike = sorted(index for group in mixed for index in group)
    pairs = [(index, group[0]) for group in mixed for index in group if labels[index] != labels[group[0]]]
    return sorted(pairs)


def _sizes(images: LabelledImages) -> np.ndarray:
    """Bytes of every image, -1 where they are not told without reading."""
    told = images.sizes() if hasattr(images, "sizes") else None
    return np.full(len(images.labels), -1, dtype=np.int64) if told is None else told


def _end(images: LabelledImages, index: int) -> bytes:
    """The size and the last bytes of an image; nothing for one that cannot be read, or comes as no bytes."""
    try:
        image: Any = images.image(index)
        if isinstance(image, str):
            with open(image, "rb", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - END))
                return size.to_bytes(8, "big") + file.read(END)
    except (OSError, ValueError):
        return b""
    if isinstance(image, np.ndarray):
        return image.reshape(-1)[-END:].tobytes() or b"empty"
    return bytes(image.getbuffer()[-END:]) if isinstance(image, io.BytesIO) else b""


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
