"""Small image files and folders for the data tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def speckle(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """(height, width, channels) uint8, every pixel different enough to notice a swap."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def write_class_folders(root: Path, counts: dict[str, int], *, size: tuple[int, int] = (9, 13)) -> None:
    """``root/<class>/<number>.png`` for every class, ``counts`` of each; 0 makes an empty folder."""
    for position, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = speckle(*size, seed=100 * position + number)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
