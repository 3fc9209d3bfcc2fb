"""Map-style data sets: a key in, eight-bit pixels and a label out.

B is the batch size, C, H, W what the model takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vit_rpe.data.batch import Batch, Samples
from vit_rpe.data.errors import BadImageError, bad_image
from vit_rpe.data.images.augment import Augmentation
from vit_rpe.data.sources.base import LabelledImages

__all__ = ["ImageSamples", "image_samples"]

_MOST_REPLACEMENTS = 100


class ImageSamples(Dataset):
    """Labelled images with their treatment.

    A key is a sample number, or (epoch, sample number) so that the epoch reaches loader processes that
    outlive it. A batch reports its unreadable images; the loader decides what they mean (``BadImages``). With
    ``replace_bad`` the next readable image stands in for one (every batch stays full and every process makes
    the same number of steps); without, it is left out.
    """

    def __init__(self, images: LabelledImages, augmentation: Augmentation, *, seed: int, replace_bad: bool):
        self.images = images
        self.labels = images.labels
        self.augmentation = augmentation
        self.seed = seed
        self.replace_bad = replace_bad

    def __len__(self) -> int:
        return len(self.labels)

    def native_size(self, index: int = 0) -> tuple[int, int]:
        """(height, width) of an image as its source gives it. Raises ``BadImageError``."""
        try:
            image = self.augmentation.preprocessing.colour(self.images.image(index))
        except Exception as error:  # decoders meet foreign bytes and raise almost anything
            raise bad_image(self.images.name(index), error) from error
        return image.height, image.width

    def __getitem__(self, key: int | tuple[int, int]) -> tuple[Tensor, int]:
        """uint8 (C, H, W) and the label. Raises ``BadImageError``."""
        epoch, index = key if isinstance(key, tuple) else (0, int(key))
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        index %= len(self)
        pixels = self._pixels(epoch, index)
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), int(self.labels[index])

    def __getitems__(self, keys: Sequence[int | tuple[int, int]]) -> Batch:
        """The whole batch at once, written into one array; what a ``DataLoader`` asks for."""
        preprocessing = self.augmentation.preprocessing
        images = np.empty((len(keys), preprocessing.in_chans, *preprocessing.img_size), dtype=np.uint8)
        labels = np.empty(len(keys), dtype=np.int64)
        bad: list[tuple[str, str]] = []
        count = 0
        for key in keys:
            epoch, index = key if isinstance(key, tuple) else (0, int(key))
            for step in range(min(len(self), _MOST_REPLACEMENTS) if self.replace_bad else 1):
                candidate = (index + step) % len(self)
                try:
                    pixels = self._pixels(epoch, candidate)
                except BadImageError as error:
                    bad.append((error.name, error.reason))
                    continue
                images[count] = pixels.transpose(2, 0, 1)
                labels[count] = self.labels[candidate]
                count += 1
                break
        return Batch(torch.from_numpy(images[:count]), torch.from_numpy(labels[:count]), tuple(bad))

    def _pixels(self, epoch: int, index: int) -> np.ndarray:
        try:
            pixels = self.augmentation.read(self.images.image(index))
        except Exception as error:  # decoders meet foreign bytes and raise almost anything
            raise bad_image(self.images.name(index), error) from error
        return self.augmentation(pixels, (self.seed, epoch, index))


def image_samples(samples: Samples) -> ImageSamples:
    """``samples`` themselves. Raises ``ValueError`` where they are no images."""
    if not isinstance(samples, ImageSamples):
        raise ValueError(f"{type(samples).__name__} gives no images")
    return samples
