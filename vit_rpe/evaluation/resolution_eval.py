"""How a trained model does on images larger, smaller or shifted against those it was trained on.

``images`` evaluates so many test images instead of all, evenly spread over the test set, the same for every model.
``model_args`` reads the weights with other arguments of the model, its ``rpe`` among them, than they were trained with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vit_rpe.checks import check_count, check_type
from vit_rpe.data import Batch, DataBundle, DataOptions, Samples, eval_loader
from vit_rpe.evaluation.trained_data import trained_data
from vit_rpe.position.devices import find_device
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.metrics import evaluate

ChangeModel = Callable[[nn.Module], None]


def accuracy_by_size(
    checkpoint: str | Path,
    sizes: Sequence[int | tuple[int, int]],
    *,
    device: str = "cpu",
    data_path: str | None = None,
    change_model: ChangeModel = lambda model: None,
    model_args: Mapping[str, Any] | None = None,
    images: int | None = None,
) -> dict[int | tuple[int, int], float]:
    """Top-1 accuracy, 0 to 1, with the test images resized to each size in pixels and the model told its new size.

    Args:
        sizes: sides, or (height, width).
        change_model: called with the freshly loaded model before each evaluation.
        images, model_args: see above.

    Raises:
        ValueError: a size the model's patch does not divide, data that is not there, or weights that do not fit.
    """
    for size in sizes:
        for side in size if isinstance(size, (tuple, list)) else (size,):
            check_count("each side of a size", side)
    results = {}
    for size in sizes:
        test = _Test.load(checkpoint, size, device, data_path, model_args, images)
        change_model(test.model)
        results[size] = test.accuracy(lambda batch: batch)
    return results


def accuracy_by_shift(
    checkpoint: str | Path,
    shifts: Sequence[int],
    *,
    device: str = "cpu",
    data_path: str | None = None,
    change_model: ChangeModel = lambda model: None,
    model_args: Mapping[str, Any] | None = None,
    images: int | None = None,
) -> dict[int, float]:
    """Top-1 accuracy, 0 to 1, with the test images moved by so many pixels, averaged over the four directions.

    What moves in at the border repeats the edge pixels.
    """
    if not shifts:
        return {}
    for shift in shifts:
        check_type("a shift in pixels", shift, int)
    test = _Test.load(checkpoint, None, device, data_path, model_args, images)
    change_model(test.model)
    results = {}
    for shift in shifts:
        directions = [(0, 0)] if shift == 0 else [(shift, 0), (-shift, 0), (0, shift), (0, -shift)]
        found = [test.accuracy(partial(shift_images, down=down, right=right)) for down, right in directions]
        results[shift] = sum(found) / len(found)
    return results


def shift_images(images: Tensor, down: int, right: int) -> Tensor:
    """Move images (B, C, H, W) by whole pixels, repeating the edge."""
    height, width = images.shape[-2:]
    rows = (torch.arange(height, device=images.device) - down).clamp(0, height - 1)
    columns = (torch.arange(width, device=images.device) - right).clamp(0, width - 1)
    return images[..., rows[:, None], columns[None, :]]


class _EvenlySpread:
    """``count`` of the samples, at equal distances."""

    def __init__(self, samples: Samples, count: int) -> None:
        self.samples = samples
        self.indices = np.arange(count) * len(samples) // count

    def __len__(self) -> int:
        return len(self.indices)

    def __getitems__(self, keys: Sequence[int | tuple[int, int]]) -> Batch:
        return self.samples.__getitems__([int(self.indices[int(key)]) for key in keys])  # type: ignore[arg-type]

    @property
    def labels(self) -> np.ndarray:
        return self.samples.labels[self.indices]


@dataclass(frozen=True)
class _Test:
    """A model and the images it is tested on."""

    model: nn.Module
    bundle: DataBundle
    config: DataOptions
    device: torch.device

    @staticmethod
    def load(
        checkpoint: str | Path,
        img_size: int | tuple[int, int] | None,
        device: str,
        data_path: str | None,
        model_args: Mapping[str, Any] | None,
        images: int | None,
    ) -> _Test:
        place = find_device(device)
        if images is not None:
            check_count("images", images)
        loaded = load_checkpoint(checkpoint, img_size=img_size, model_args=model_args)
        bundle, config = trained_data(loaded, path=data_path)
        if images is not None and images < len(bundle.val):
            bundle = replace(bundle, val=_EvenlySpread(bundle.val, images))
        return _Test(loaded.model.to(place), bundle, config, place)

    def accuracy(self, change: Callable[[Tensor], Tensor]) -> float:
        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            for images, labels in eval_loader(self.bundle, self.config):
                yield change(images), labels

        result = evaluate(
            self.model,
            batches(),
            prepare=lambda images: self.bundle.to_device_batch(images, self.device),
            num_classes=self.bundle.num_classes,
            device=self.device,
        )
        return result.top1
