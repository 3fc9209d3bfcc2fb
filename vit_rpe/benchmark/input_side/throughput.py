"""Images per second of the input side, beside torchvision's v2 transforms doing the same work in the same
run.

Two settings: ``memory``, small colour images that are already arrays (as CIFAR is), and ``jpeg``, one file
per image (as ImageNet is). Both sides run in a torch ``DataLoader`` with the same number of processes and the
same batch size, sample by sample, and both end at normalised float32 batches: torchvision normalises each
sample in the loader, ours leaves eight-bit images and normalises the batch in the main process, inside the
clock and on one thread. The measurements alternate; each number is the best of ``repeats``, since other load
on the machine can only slow a run down. Starting the processes is not counted.

What differs within "the same work": interpolation (torchvision: antialiased linear; ours: area when shrinking,
else cubic), and in ``cifar`` and ``deit`` which operations the policy holds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_rpe.benchmark.input_side.torchvision_input import torchvision_batches
from vit_rpe.checks import unknown_name
from vit_rpe.data import DataBundle, ImageData, build_data, train_loader
from vit_rpe.data.account import BadImages
from vit_rpe.data.images.augment import Augmentation
from vit_rpe.data.images.preprocessing import Preprocessing
from vit_rpe.data.images.samples import ImageSamples
from vit_rpe.data.sources import ArrayImages

__all__ = ["SETTINGS", "Row", "run"]

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SETTINGS: dict[str, tuple[str, ...]] = {"memory": ("light", "cifar"), "jpeg": ("imagenet", "deit")}


@dataclass(frozen=True)
class Row:
    """One line of the table; rates in images per second, ``ratio`` ours over torchvision's."""

    setting: str
    augment: str
    ours: float
    torchvision: float

    @property
    def ratio(self) -> float:
        return self.ours / self.torchvision


def run(
    *,
    settings: Iterable[str] = tuple(SETTINGS),
    num_workers: int = 2,
    num_images: int = 2000,
    batch_size: int = 50,
    repeats: int = 3,
    path: str | None = None,
) -> list[Row]:
    """Measure and return one row per setting and augmentation preset.

    Args:
        settings: ``memory``, ``jpeg`` or both.
        num_workers: loader processes of either side.
        num_images: images per measurement; ``memory`` uses ten times as many.
        batch_size: images per batch.
        repeats: measurements per number.
        path: folder of images by class for ``jpeg``; without it, images are made up and written to a
            temporary folder.

    Raises:
        ValueError: an unknown setting, or fewer than two batches of images.
    """
    rows = []
    for setting in settings:
        if setting not in SETTINGS:
            raise unknown_name("setting", setting, SETTINGS)
        with tempfile.TemporaryDirectory() as folder:
            for augment in SETTINGS[setting]:
                config = ImageData(
                    name="folder" if setting == "jpeg" else "digits",
                    path=(path or folder) if setting == "jpeg" else None,
                    augment=augment,
                    batch_size=batch_size,
                    num_workers=num_workers,
                )
                if setting == "memory":
                    bundle = _in_memory(config, 10 * num_images)
                else:
                    if path is None and not any(Path(folder).iterdir()):
                        write_jpegs(Path(folder), num_images)
                    bundle = build_data(config, img_size=(224, 224), in_chans=3, seed=0)
                rows.append(_row(setting, bundle, config, repeats))
    return rows


def table(rows: Iterable[Row]) -> str:
    """The rows as aligned text."""
    lines = [f"{'setting':8} {'augment':9} {'ours':>10} {'torchvision':>12} {'ratio':>6}   (images/s)"]
    for row in rows:
        lines.append(f"{row.setting:8} {row.augment:9} {row.ours:10,.0f} {row.torchvision:12,.0f} {row.ratio:6.2f}")
    return "\n".join(lines)


def write_jpegs(folder: Path, count: int) -> None:
    """``count`` made-up JPEG files of 500 x 375 in three class folders: blobs and grain, about 100 kB each."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for number in range(count):
        blobs = Image.fromarray(generator.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize((500, 375))
        grain = generator.integers(-12, 12, (375, 500, 3))
        pixels = (np.asarray(blobs).astype(np.int64) + grain).clip(0, 255).astype(np.uint8)
        place = folder / str(number % 3)
        place.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number}.jpg", quality=90)


def _in_memory(config: ImageData, count: int) -> DataBundle:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    preprocessing = Preprocessing((32, 32), 3, _MEAN, _STD)
    source = ArrayImages(images, generator.integers(0, 10, count), "made up")
    samples = ImageSamples(source, Augmentation(config.augment, preprocessing), seed=0, replace_bad=True)
    return DataBundle(samples, samples, [str(n) for n in range(10)], preprocessing, BadImages(None), "benchmark")


def _row(setting: str, bundle: DataBundle, config: ImageData, repeats: int) -> Row:
    loader = train_loader(bundle, config, seed=0)
    if len(loader) < 2:
        raise ValueError(f"{len(bundle.train)} training images, expected at least {2 * config.batch_size}")

    def ours() -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in loader:
            yield bundle.to_device_batch(images, "cpu"), labels

    peer = torchvision_batches(bundle, config)
    best: dict[str, float] = {"ours": 0.0, "torchvision": 0.0}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for repeat in range(repeats):
            loader.set_epoch(repeat)
            best["ours"] = max(best["ours"], _rate(ours()))
            best["torchvision"] = max(best["torchvision"], _rate(peer))
    finally:
        torch.set_num_threads(threads)
    return Row(setting, config.augment, best["ours"], best["torchvision"])


def _rate(batches: Iterable[Any]) -> float:
    """Images per second after the first batch, which waits for the processes to start."""
    iterator = iter(batches)
    next(iterator)
    start, count = time.perf_counter(), 0
    for _, labels in iterator:
        count += len(labels)
    return count / (time.perf_counter() - start)
