"""The data options of one experiment: typed, JSON-able, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass, fields

from vit_rpe.checks import check_choice

__all__ = ["AUGMENT_PRESETS", "DATA_NAMES", "INTERPOLATIONS", "TEXT_NAMES", "DataConfig"]

TEXT_NAMES = ("text", "text_classes")
DATA_NAMES = (
    "digits",
    "fashion_mnist",
    "cifar10",
    "cifar100",
    "imagenet",
    "folder",
    "hf",
    "parquet",
    "webdataset",
    *TEXT_NAMES,
)
AUGMENT_PRESETS = ("none", "light", "cifar", "imagenet", "deit")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")
_PILLOW_LIMIT = 178_956_970  # Pillow itself refuses larger images
_START_METHODS = ("fork", "spawn", "forkserver")


@dataclass(frozen=True)
class DataConfig:
    """Where the images (or the text) come from and how they become batches.

    Args:
        name: data source: digits, fashion_mnist, cifar10, cifar100, imagenet, folder, hf, parquet,
            webdataset; text
            (language modelling) or text_classes (a folder a class), of Python's standard library without
            ``path``
        path: folder of the files; for hf the hub name or a local data set; for parquet and webdataset a file
            pattern such as ``shards/train-{0000..0099}.tar``
        val_path: the validation files where they are not found under ``path``
        img_size: image side or [height, width] in pixels; null takes the model's
        augment: named training augmentation: none, light, cifar, imagenet, deit
        batch_size: training samples of one process per step
        eval_batch_size: samples per evaluation step; null takes ``batch_size``
        num_workers: loader processes; 0 loads in the main process
        persistent_workers: keep the loader processes between epochs
        start_method: how loader processes start: fork, spawn, forkserver; null takes the platform's
        pin_memory: copy batches into page-locked memory (faster transfers to a GPU)
        prefetch_factor: batches each loader process prepares ahead
        drop_last: leave out the last, smaller training batch of an epoch
        val_fraction: share of the samples held out where the source has no validation split of its own
        split_seed: seed of that split and of ``fraction``; not the training seed, so that seeds share one
            split
        fraction: share of the training samples used, the same share of every class
        download: fetch missing data (fashion_mnist, cifar10, cifar100)
        on_bad_image: ``error`` stops at an unreadable image and names it; ``skip`` counts it and goes on
        max_bad_images: with ``skip``, stop when more images than this are unreadable
        max_pixels: refuse images with more pixels than this (decompression bombs)
        crop_pct: share of the short side kept by the evaluation crop; null takes the source's own
        interpolation: nearest, bilinear, bicubic, lanczos; null takes the source's own
        mean: channel means on the 0..1 scale; null takes the source's own
        std: channel standard deviations on the 0..1 scale; null takes the source's own
        background: colour (red, green, blue; 0..255) put behind transparent pixels
        image_key: image column of hf and parquet; null finds it
        label_key: label column of hf and parquet; null finds it
        mixup: mixup alpha; 0 turns mixup off
        cutmix: cutmix alpha; 0 turns cutmix off
        mix_prob: share of the batches that are mixed
        mix_switch_prob: share of the mixed batches that use cutmix where both are on
        length: characters of a sample of text
        characters: size of the vocabulary of text: the most frequent characters, and one for all others
        windows: training samples of text in an epoch; null takes as many as cover the text once
        val_characters: about how many characters of held-out text to score, spread evenly; null takes all
    """

    name: str = "digits"
    path: str | None = None
    val_path: str | None = None
    img_size: int | tuple[int, int] | None = None
    augment: str = "none"
    batch_size: int = 64
    eval_batch_size: int | None = None
    num_workers: int = 0
    persistent_workers: bool = True
    start_method: str | None = None
    pin_memory: bool = False
    prefetch_factor: int = 2
    drop_last: bool = True
    val_fraction: float = 0.2
    split_seed: int = 0
    fraction: float = 1.0
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
    length: int = 128
    characters: int = 128
    windows: int | None = None
    val_characters: int | None = 131_072

    def __post_init__(self) -> None:
        check_choice("data.name", self.name, DATA_NAMES)
        check_choice("data.augment", self.augment, AUGMENT_PRESETS)
        check_choice("data.on_bad_image", self.on_bad_image, ("error", "skip"))
        if self.interpolation is not None:
            check_choice("data.interpolation", self.interpolation, INTERPOLATIONS)
        if self.start_method is not None:
            check_choice("data.start_method", self.start_method, _START_METHODS)
        _check_kind(self)
        for key in ("batch_size", "prefetch_factor", "max_pixels"):
            _check(key, getattr(self, key), getattr(self, key) >= 1, "at least 1")
        for key in ("num_workers", "max_bad_images", "mixup", "cutmix"):
            _check(key, getattr(self, key), getattr(self, key) >= 0, "at least 0")
        for key in ("mix_prob", "mix_switch_prob"):
            _check(key, getattr(self, key), 0 <= getattr(self, key) <= 1, "between 0 and 1")
        _check("max_pixels", self.max_pixels, self.max_pixels <= _PILLOW_LIMIT, f"at most {_PILLOW_LIMIT}")
        eval_batch = self.eval_batch_size
        _check("eval_batch_size", eval_batch, eval_batch is None or eval_batch >= 1, "at least 1 or null")
        _check("val_fraction", self.val_fraction, 0 < self.val_fraction < 1, "between 0 and 1, both excluded")
        _check("fraction", self.fraction, 0 < self.fraction <= 1, "above 0, at most 1")
        crop_pct = self.crop_pct
        _check("crop_pct", crop_pct, crop_pct is None or 0 < crop_pct <= 1, "above 0, at most 1, or null")
        _check("std", self.std, self.std is None or min(self.std) > 0, "all above 0")
        background = self.background
        _check("background", background, all(0 <= part <= 255 for part in background), "three of 0..255")
        mixes = self.mixup > 0 or self.cutmix > 0
        _check("batch_size", self.batch_size, not mixes or self.batch_size % 2 == 0, "even with mixup or cutmix")


def _check(key: str, given: object, good: bool, expected: str) -> None:
    if not good:
        raise ValueError(f"data.{key}={given!r}, expected {expected}")


_OF_TEXT = ("length", "characters", "windows", "val_characters")
_OF_IMAGES = (
    "img_size",
    "augment",
    "download",
    "on_bad_image",
    "max_bad_images",
    "max_pixels",
    "crop_pct",
    "interpolation",
    "mean",
    "std",
    "background",
    "image_key",
    "label_key",
    "mixup",
    "cutmix",
    "mix_prob",
    "mix_switch_prob",
)


def _check_kind(config: DataConfig) -> None:
    """Options of images change nothing for text and the other way round: they must be left alone."""
    foreign = _OF_IMAGES if config.name in TEXT_NAMES else _OF_TEXT
    for field in fields(config):
        given = getattr(config, field.name)
        same = (tuple(given) if isinstance(given, list) else given) == field.default  # JSON knows lists only
        if field.name in foreign and not same:
            raise ValueError(f"data.{field.name}={given!r} means nothing for data.name={config.name}: leave it out")
    for key, least in (("length", 1), ("characters", 2), ("windows", 1), ("val_characters", 1)):
        given = getattr(config, key)
        _check(key, given, given is None or given >= least, f"at least {least}")
