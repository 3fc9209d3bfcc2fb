"""The data to evaluate a trained model on: its own, or others with the same classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vit_rpe.data import DataBundle, DataOptions, other_data, rebuild_data
from vit_rpe.training.checkpoint.checkpoint import LoadedCheckpoint

__all__ = ["trained_data"]


def trained_data(loaded: LoadedCheckpoint, **changes: Any) -> tuple[DataBundle, DataOptions]:
    """The data a checkpoint was trained on, prepared as in training, and the options they were read with.

    Args:
        changes: data options that differ from those of the training, such as ``path``; None for no change.

    Raises:
        ValueError: options that do not go together, data that are not there, or other classes than the model's.
    """
    config = other_data(loaded.info.data, **changes)
    bundle = rebuild_data(config, loaded.treatment)
    if loaded.class_names and bundle.class_names != loaded.class_names:
        found, expected = _some(bundle.class_names), _some(loaded.class_names)
        raise ValueError(f"the data have the classes {found}, the checkpoint has {expected}")
    return bundle, config


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''} ({len(names)})"
