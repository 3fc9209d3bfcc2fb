"""One affine operation per image, as an albumentations transform.

``albumentations.Affine`` covers the same and much more (boxes, masks, output fitting) at ten times the cost
of the warp itself on small images. Import this module only where albumentations is wanted: it imports it.

H, W, C the image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from albumentations import ImageOnlyTransform

__all__ = ["WARPS", "Warp"]

# linear part (2, 2) row by row, and shift (x, y) in shares of the side, at strength s
WARPS: dict[str, Callable[[float], tuple[tuple[float, float, float, float], tuple[float, float]]]] = {
    "rotate": lambda s: ((math.cos(s), -math.sin(s), math.sin(s), math.cos(s)), (0.0, 0.0)),
    "shear_x": lambda s: ((1.0, s, 0.0, 1.0), (0.0, 0.0)),
    "shear_y": lambda s: ((1.0, 0.0, s, 1.0), (0.0, 0.0)),
    "translate_x": lambda s: ((1.0, 0.0, 0.0, 1.0), (s, 0.0)),
    "translate_y": lambda s: ((1.0, 0.0, 0.0, 1.0), (0.0, s)),
}


class Warp(ImageOnlyTransform):
    """Warp ``kind`` about the image centre with a strength drawn from -``limit`` .. ``limit``.

    The strength is radians for ``rotate``, the tangent for shears, a share of the side for translations.
    Linear interpolation; what comes from outside gets the colour ``fill``, one number per channel.
    """

    def __init__(self, kind: str, limit: float, fill: tuple[int, ...], p: float = 1.0):
        super().__init__(p=p)
        self.kind = kind
        self.limit = limit
        self.fill = fill

    def get_params(self) -> dict[str, Any]:
        """Draw the strength."""
        return {"strength": self.py_random.uniform(-self.limit, self.limit)}

    def apply(self, img: np.ndarray, strength: float, **params: Any) -> np.ndarray:
        """(H, W, C) uint8 to the same."""
        height, width = img.shape[:2]
        (a, b, c, d), (right, down) = WARPS[self.kind](strength)
        x, y = (width - 1) / 2, (height - 1) / 2
        matrix = np.array([[a, b, x - a * x - b * y + right * width], [c, d, y - c * x - d * y + down * height]])
        out = cv2.warpAffine(img, matrix, (width, height), flags=cv2.INTER_LINEAR, borderValue=self.fill)
        return out.reshape(img.shape)
