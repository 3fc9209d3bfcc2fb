"""Experiment trackers by name, through Accelerate."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers

from vit_rpe.training.config.schema import RunConfig

__all__ = ["check_trackers", "log_pictures", "start_trackers"]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    flat: dict[str, str | int | float | bool] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value if isinstance(value, (str, int, float, bool)) else str(value)
    return flat


def check_trackers(names: list[str]) -> None:
    """Raise ``ValueError`` if a tracker's package is not installed; Accelerate would leave it out."""
    available = {tracker.value for tracker in get_available_trackers()}
    for name in names:
        if name not in available:
            raise ValueError(f"trackers: {name} is not installed (pip install {name})")


def start_trackers(accelerator: Accelerator, config: RunConfig) -> None:
    """Open the trackers of a config, with the whole config as the run's parameters."""
    if config.trackers:
        accelerator.init_trackers("vit_rpe", config=_flat(asdict(config)))


def log_pictures(accelerator: Accelerator, pictures: dict[str, np.ndarray], *, step: int) -> None:
    """Send pictures by name, uint8 (height, width, 3), to every open tracker."""
    for tracker in accelerator.trackers:
        for name, pixels in pictures.items():
            if tracker.name == "tensorboard":
                tracker.writer.add_image(name, pixels, step, dataformats="HWC")
            elif tracker.name == "trackio":
                import trackio

                tracker.log({name: trackio.Image(pixels)}, step=step)
            else:
                tracker.log_images({name: [pixels]}, step=step)
