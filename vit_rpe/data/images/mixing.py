"""Mixup (arXiv 1710.09412) and cutmix (arXiv 1905.04899) of whole batches, by timm, with keyed draws.

timm draws from NumPy's global state. Here that state is set for the one call and put back after it, so a
batch's mixture depends on (seed, epoch, batch, rank) alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from timm.data.mixup import Mixup
from torch import Tensor

from vit_rpe.data.draws import key_number
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.options import DataOptions

__all__ = ["BatchMixer", "batch_mixer"]


class BatchMixer:
    """Call on a batch on its device: images (B, C, H, W) float, labels (B,) int64, B even."""

    def __init__(self, mixup: Any):
        self._mixup = mixup

    def __call__(
        self, images: Tensor, labels: Tensor, *, seed: int, epoch: int, batch: int, rank: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Mixed images (in place) and targets (B, num_classes) that sum to 1."""
        if len(images) % 2:
            raise ValueError(f"a batch of {len(images)} images cannot be mixed in pairs; expected an even number")
        before = np.random.get_state()  # noqa: NPY002 - the state timm draws from
        np.random.seed(key_number("mix", seed, epoch, batch, rank) % 2**32)  # noqa: NPY002
        try:
            return self._mixup(images, labels)
        finally:
            np.random.set_state(before)  # noqa: NPY002


def batch_mixer(config: DataOptions, *, num_classes: int, label_smoothing: float) -> BatchMixer | None:
    """The mixer of ``config``, or None where mixup and cutmix are both off, as for text."""
    if not isinstance(config, ImageData) or (config.mixup == 0 and config.cutmix == 0):
        return None
    return BatchMixer(
        Mixup(
            mixup_alpha=config.mixup,
            cutmix_alpha=config.cutmix,
            prob=config.mix_prob,
            switch_prob=config.mix_switch_prob,
            label_smoothing=label_smoothing,
            num_classes=num_classes,
        )
    )
