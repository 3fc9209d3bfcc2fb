"""The input side of ``vit_rpe.benchmark.input_side.throughput`` built from torchvision's v2 transforms.

The order of the steps is the fastest found for torchvision on CPU: from an array straight to a tensor for
small images, and crops on tensors for files.
"""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from vit_rpe.data import DataBundle, ImageData, Preprocessing, image_samples
from vit_rpe.data.sources import LabelledImages

__all__ = ["torchvision_batches"]


class _Samples(Dataset):
    """One transformed sample at a time: ``images`` through ``transform``."""

    def __init__(self, images: LabelledImages, transform: Any):
        self.images = images
        self.transform = transform
        self.labels = images.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.images.image(index)
        if isinstance(image, str):
            with Image.open(image) as file:
                image = file.convert("RGB")
        return self.transform(image), int(self.labels[index])


def torchvision_batches(bundle: DataBundle, config: ImageData) -> DataLoader:
    """Batches of normalised float images (B, C, H, W) with the work of ``config.augment``."""
    transform = v2.Compose(_steps(config.augment, bundle.preprocessing))
    return DataLoader(
        _Samples(image_samples(bundle.train).images, transform),
        batch_size=config.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=config.num_workers,
        persistent_workers=config.num_workers > 0,
    )


def _steps(augment: str, preprocessing: Preprocessing) -> list[Any]:
    height, width = preprocessing.img_size
    shift = v2.RandomCrop((height, width), padding=(width // 8, height // 8), padding_mode="reflect")
    crop = v2.RandomResizedCrop((height, width), antialias=True)
    flip = v2.RandomHorizontalFlip()
    steps = {
        "light": [shift, flip],
        "cifar": [shift, flip, v2.RandAugment(2), v2.RandomErasing(0.25)],
        "imagenet": [crop, flip, v2.ColorJitter(0.4, 0.4, 0.4)],
        "deit": [crop, flip, v2.RandAugment(2), v2.RandomErasing(0.25)],
    }
    end = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(preprocessing.mean, preprocessing.std)]
    return [v2.ToImage(), *steps[augment], *end]
