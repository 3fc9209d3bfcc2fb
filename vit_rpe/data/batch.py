"""What loaders ask of a data set, of images or of text: keys in, batches out.

B batch, C channels, H and W pixels, L tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from vit_rpe.checks import warn_renamed

__all__ = ["Batch", "Samples"]


class Batch(NamedTuple):
    """``inputs``: images (B, C, H, W) uint8 or token numbers (B, L) int64; ``labels``: int64 (B,), or (B, L) with one
    a token; ``bad``: (name, reason) of what could not be read.
    """

    inputs: Tensor
    labels: Tensor
    bad: tuple[tuple[str, str], ...] = ()

    @property
    def images(self) -> Tensor:
        """Deprecated name of ``inputs``."""
        warn_renamed("Batch.images", "Batch.inputs")
        return self.inputs


class Samples(Protocol):
    """Random access to samples, a whole batch at once."""

    def __len__(self) -> int:
        """Number of samples."""

    def __getitems__(self, keys: Sequence[int | tuple[int, int]]) -> Batch:
        """The batch of these keys, each a sample number or (epoch, sample number)."""

    @property
    def labels(self) -> np.ndarray:
        """The class numbers that occur."""
