"""How a trained model does on images larger, smaller or shifted against those it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from vit_rpe.data import eval_loader
from vit_rpe.evaluation.trained_data import trained_data
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
) -> dict[int | tuple[int, int], float]:
    """Top-1 accuracy, 0 to 1, with the test images resized to each size in pixels and the model told its new size.

    Args:
        sizes: sides, or (height, width).
        change_model: called with the freshly loaded model before each evaluation.

    Raises:
        ValueError: a size the model's patch does not divide, or data that is not there.
    """
    return {
        size: _accuracy(
            checkpoint,
            img_size=size,
            device=device,
            data_path=data_path,
            change=lambda images: images,
            change_model=change_model,
        )
        for size in sizes
    }


def accuracy_by_shift(
    checkpoint: str | Path,
    shifts: Sequence[int],
    *,
    device: str = "cpu",
    data_path: str | None = None,
    change_model: ChangeModel = lambda model: None,
) -> dict[int, float]:
    """Top-1 accuracy, 0 to 1, with the test images moved by so many pixels, averaged over the four directions.

    What moves in at the border repeats the edge pixels.
    """
    results = {}
    for shift in shifts:
        directions = [(0, 0)] if shift == 0 else [(shift, 0), (-shift, 0), (0, shift), (0, -shift)]
        found = [
            _accuracy(
                checkpoint,
                img_size=None,
                device=device,
                data_path=data_path,
                change=partial(shift_images, down=down, right=right),
                change_model=change_model,
            )
            for down, right in directions
        ]
        results[shift] = sum(found) / len(found)
    return results


def shift_images(images: Tensor, down: int, right: int) -> Tensor:
    """Move images (B, C, H, W) by whole pixels, repeating the edge."""
    height, width = images.shape[-2:]
    rows = (torch.arange(height, device=images.device) - down).clamp(0, height - 1)
    columns = (torch.arange(width, device=images.device) - right).clamp(0, width - 1)
    return images[..., rows[:, None], columns[None, :]]


def _accuracy(
    checkpoint: str | Path,
    *,
    img_size: int | tuple[int, int] | None,
    device: str,
    data_path: str | None,
    change: Callable[[Tensor], Tensor],
    change_model: ChangeModel,
) -> float:
    loaded = load_checkpoint(checkpoint, img_size=img_size)
    change_model(loaded.model)
    bundle, config = trained_data(loaded, path=data_path)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in eval_loader(bundle, config):
            yield change(images), labels

    result = evaluate(
        loaded.model.to(device),
        batches(),
        prepare=lambda images: bundle.to_device_batch(images, device),
        num_classes=bundle.num_classes,
        device=torch.device(device),
    )
    return result.top1
