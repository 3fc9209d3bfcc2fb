"""The data options of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vit_rpe.checks import check_choice
from vit_rpe.data.options import DataOptions, expect

__all__ = ["AUGMENT_PRESETS", "INTERPOLATIONS", "ImageData", "image_data"]

AUGMENT_PRESETS = ("none", "light", "cifar", "imagenet", "deit")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")
_PILLOW_LIMIT = 178_956_970  # Pillow itself refuses larger images


@dataclass(frozen=True)
class ImageData(DataOptions):
    """Images: which, how they are treated, and how they are drawn from.

    Args:
        img_size: image side or [height, width] in pixels; null takes the model's
        augment: named training augmentation: none, light, cifar, imagenet, deit
        download: fetch missing data (fashion_mnist, cifar10, cifar100)
        on_bad_image: ``error`` stops at an unreadable image and names it; ``skip`` counts it and goes on
        max_bad_images: with ``skip``, stop when more images than this are unreadable
        max_pixels: refuse images with more pixels than this (decompression bombs)
        crop_pct: share of the short side kept by the evaluation crop; null takes the source's own
        interpolation: nearest, bilinear, bicubic, lanczos; null takes the source's own
        mean: channel means on the 0..1 scale, one number per channel; null takes the source's own
        std: channel standard deviations on the 0..1 scale, one per channel; null takes the source's own
        background: colour (red, green, blue; 0..255) put behind transparent pixels
        image_key: image column of hf and parquet; null finds it
        label_key: label column of hf and parquet; null finds it
        mixup: mixup alpha; 0 turns mixup off
        cutmix: cutmix alpha; 0 turns cutmix off
        mix_prob: share of the batches that are mixed
        mix_switch_prob: share of the mixed batches that use cutmix where both are on
    """

    kind: ClassVar[str] = "images"

    name: str = "digits"
    img_size: int | tuple[int, int] | None = None
    augment: str = "none"
    download: bool = False
    on_bad_image: str = "error"
    max_bad_images: int = 100
    max_pixels: int = 89_478_485
    crop_pct: float | None = None
    interpolation: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    background: tuple[int, int, int] = (255, 255, 255)
    image_key: str | None = None
    label_key: str | None = None
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_prob: float = 1.0
    mix_switch_prob: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("data.augment", self.augment, AUGMENT_PRESETS)
        check_choice("data.on_bad_image", self.on_bad_image, ("error", "skip"))
        if self.interpolation is not None:
            check_choice("data.interpolation", self.interpolation, INTERPOLATIONS)
        expect("max_pixels", self.max_pixels, self.max_pixels >= 1, "at least 1")
        expect("max_pixels", self.max_pixels, self.max_pixels <= _PILLOW_LIMIT, f"at most {_PILLOW_LIMIT}")
        for key in ("max_bad_images", "mixup", "cutmix"):
            expect(key, getattr(self, key), getattr(self, key) >= 0, "at least 0")
        for key in ("mix_prob", "mix_switch_prob"):
            expect(key, getattr(self, key), 0 <= getattr(self, key) <= 1, "between 0 and 1")
        crop_pct = self.crop_pct
        expect("crop_pct", crop_pct, crop_pct is None or 0 < crop_pct <= 1, "above 0, at most 1, or null")
        for key in ("mean", "std"):
            given = getattr(self, key)
            good = given is None or (len(given) > 0 and all(0 <= value <= 1 for value in given))
            expect(key, given, good, "one number on the 0..1 scale per channel")
        expect("std", self.std, self.std is None or min(self.std) > 0, "all above 0")
        background = self.background
        good = len(background) == 3 and all(0 <= part <= 255 for part in background)
        expect("background", background, good, "three of 0..255")
        self._check_together()

    def _check_together(self) -> None:
        """Options that do something only beside others."""
        mixes = self.mixup > 0 or self.cutmix > 0
        expect("batch_size", self.batch_size, not mixes or self.batch_size % 2 == 0, "even with mixup or cutmix")
        expect("mix_prob", self.mix_prob, mixes or self.mix_prob == 1, "data.mixup or data.cutmix above 0 beside it")
        both = self.mixup > 0 and self.cutmix > 0
        switch = self.mix_switch_prob
        expect("mix_switch_prob", switch, both or switch == 0.5, "data.mixup and data.cutmix above 0 beside it")
        skips = self.on_bad_image == "skip"
        cap = self.max_bad_images
        expect("max_bad_images", cap, skips or cap == 100, "data.on_bad_image=skip beside it")


def image_data(config: DataOptions) -> ImageData:
    """``config`` itself. Raises ``ValueError`` where it is not of images."""
    if not isinstance(config, ImageData):
        raise ValueError(f"data.name={config.name} gives {config.kind}, not images")
    return config
