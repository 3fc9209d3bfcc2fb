"""The named training augmentations, as albumentations pipelines on eight-bit images.

``none``      the evaluation treatment, nothing random
``light``     shift by up to an eighth of the side (reflected border), horizontal flip
``cifar``     ``light``, one or two operations of the policy, an erased rectangle in a quarter of the images
``imagenet``  random resized crop (8..100 % of the area), flip, colour jitter
``deit``      random resized crop, flip, two operations of the policy, erasing in a quarter of the images
              (after "Training data-efficient image transformers", arXiv 2012.12877, table 9; mixup and cutmix
              are options of their own and work on whole batches)

The policy draws its operations without replacement from the usual geometric and colour operations at a middle
strength, after "RandAugment", arXiv 1909.13719; a grey image has no colour operations. Erasing follows arXiv
1708.04896.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_rpe.data.draws import KeyedRandom

if TYPE_CHECKING:
    from vit_rpe.data.images.preprocessing import Preprocessing

__all__ = ["Augmentation"]

_WHOLE_IMAGE = ("imagenet", "deit")


class Augmentation:
    """Image to augmented eight-bit pixels in two steps; the draws depend on the key alone.

    The pipeline is built here, in the main process, so that forked loader processes inherit the import.
    """

    def __init__(self, preset: str, preprocessing: Preprocessing):
        self.preset = preset
        self.preprocessing = preprocessing
        self._random = KeyedRandom()
        self._pipeline = None if preset == "none" else _pipeline(preset, preprocessing)
        if self._pipeline is not None:
            self._pipeline.set_random_state(self._random.numpy, self._random.python)

    def read(self, image: Any) -> np.ndarray:
        """Anything ``Preprocessing`` takes to uint8: (H, W, C), or (h, w, C) where the preset crops it
        itself.
        """
        if self.preset not in _WHOLE_IMAGE:
            return self.preprocessing.pixels(image)
        pixels = np.asarray(self.preprocessing.colour(image))
        return pixels if pixels.ndim == 3 else pixels[:, :, None]

    def __call__(self, pixels: np.ndarray, key: tuple[int, ...]) -> np.ndarray:
        """What ``read`` gave to uint8 (H, W, C); ``key`` is (seed, epoch, sample)."""
        if self._pipeline is None:
            return pixels
        self._random.move_to(*key)
        return self._pipeline(image=pixels)["image"]


def _pipeline(preset: str, preprocessing: Preprocessing) -> Any:
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # else the import asks the network for a newer version
    import albumentations as A
    import cv2

    height, width = preprocessing.img_size
    colour = preprocessing.in_chans == 3
    fill = tuple(round(255 * mean) for mean in preprocessing.mean)
    flip = A.HorizontalFlip(p=0.5)
    shift = [
        A.PadIfNeeded(height + 2 * (height // 8), width + 2 * (width // 8), border_mode=cv2.BORDER_REFLECT_101),
        A.RandomCrop(height, width),
    ]
    crop = A.RandomResizedCrop(
        (height, width), scale=(0.08, 1.0), interpolation=cv2.INTER_CUBIC, area_for_downscale="image"
    )
    erase = A.Erasing(scale=(0.02, 0.33), ratio=(0.3, 3.3), fill="random", p=0.25)
    jitter = A.ColorJitter(0.4, 0.4, 0.4 if colour else 0, 0, p=1.0)
    steps = {
        "light": [*shift, flip],
        "cifar": [*shift, flip, A.SomeOf(_policy(fill, colour), n=2, replace=False, p=0.9), erase],
        "imagenet": [crop, flip, jitter],
        "deit": [crop, flip, A.SomeOf(_policy(fill, colour), n=2, replace=False, p=1.0), erase],
    }
    return A.Compose(steps[preset])


def _policy(fill: tuple[int, ...], colour: bool) -> list[Any]:
    import albumentations as A

    from vit_rpe.data.images.warp import Warp

    operations = [
        Warp("rotate", 0.52, fill),
        Warp("shear_x", 0.3, fill),
        Warp("shear_y", 0.3, fill),
        Warp("translate_x", 0.3, fill),
        Warp("translate_y", 0.3, fill),
        A.AutoContrast(p=1.0),
        A.Equalize(p=1.0),
        A.Posterize(num_bits=(4, 7), p=1.0),
        A.Solarize(threshold_range=(0.4, 1.0), p=1.0),
        A.RandomBrightnessContrast((-0.4, 0.4), (0, 0), p=1.0),
        A.RandomBrightnessContrast((0, 0), (-0.4, 0.4), p=1.0),
        A.OneOf([A.Sharpen(alpha=(0.2, 0.6), p=1.0), A.GaussianBlur(sigma_limit=(0.3, 1.5), p=1.0)], p=1.0),
    ]
    if colour:
        operations.append(A.HueSaturationValue(0, (-80, 80), 0, p=1.0))
    return operations
