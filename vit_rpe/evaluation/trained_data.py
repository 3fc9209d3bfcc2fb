"""The data to evaluate a trained model on, its own or others with the same classes, and how it does on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from vit_rpe.data import DataBundle, DataOptions, eval_loader, other_data, rebuild_data
from vit_rpe.precision import placement_of
from vit_rpe.training.checkpoint.belonging import check_classes
from vit_rpe.training.checkpoint.checkpoint import LoadedCheckpoint
from vit_rpe.training.metrics import Evaluation, evaluate

__all__ = ["Measured", "evaluate_trained", "trained_data"]


class Measured(NamedTuple):
    """A result; of which split, in words; what that split is called; and what could not be read, empty for nothing."""

    result: Evaluation
    split: str
    called: str
    skipped: str


def evaluate_trained(
    loaded: LoadedCheckpoint, *, split: str = "val", device: torch.device | None = None, **changes: Any
) -> Measured:
    """Evaluate a checkpoint on its data, with the confusion matrix.

    Args:
        split: ``"val"`` or ``"train"``.
        device: where; default: where the model is now.
        changes: as for :func:`trained_data`.

    Raises:
        ValueError: as :func:`trained_data`.
    """
    bundle, config = trained_data(loaded, **changes)
    where = device or placement_of(loaded.model).device
    samples = bundle.val if split == "val" else bundle.train
    result = evaluate(
        loaded.model.to(where),
        eval_loader(replace(bundle, val=samples), config),
        prepare=lambda inputs: bundle.to_device_batch(inputs, where),
        num_classes=len(loaded.class_names),
        device=where,
        confusion=True,
    )
    called = bundle.held_out if split == "val" else "train"
    return Measured(result, f"{split} of {bundle.split}", called, bundle.bad_images.summary())


def trained_data(loaded: LoadedCheckpoint, **changes: Any) -> tuple[DataBundle, DataOptions]:
    """The data a checkpoint was trained on, prepared as in training, and the options they were read with.

    Args:
        changes: data options that differ from those of the training, such as ``path``; None for no change.

    Raises:
        ValueError: options that do not go together, data that are not there, or other classes than the model's.
    """
    config = other_data(loaded.info.data, **changes)
    bundle = rebuild_data(config, loaded.treatment)
    check_classes(bundle.class_names, loaded.class_names, of="the data", by="the checkpoint")
    return bundle, config
