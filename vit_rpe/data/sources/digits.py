"""Handwritten digits: 1,797 grey images of 8x8 that ship inside scikit-learn, no download.

From the UCI set "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998).
"""

from __future__ import annotations

import numpy as np

from vit_rpe.data.images.config import ImageData
from vit_rpe.data.sources.base import ArrayImages, DataSource
from vit_rpe.data.sources.statistics import DIGITS

__all__ = ["digits"]


def digits(config: ImageData) -> DataSource:
    """The digits; their 0..16 grey scale becomes 0..255, rounded."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = ((data.images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)
    mean, std = DIGITS
    return DataSource(
        train=ArrayImages(images, data.target.astype(np.int64), "digits"),
        val=None,
        class_names=[str(name) for name in data.target_names],
        mean=mean,
        std=std,
        held_out="test",
    )
