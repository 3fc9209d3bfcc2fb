"""Experiment trackers by name, through Accelerate."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import filter_trackers

from vit_rpe.training.config import RunConfig

__all__ = ["start_trackers"]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    flat: dict[str, str | int | float | bool] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value if isinstance(value, (str, int, float, bool)) else str(value)
    return flat


def check_trackers(names: list[str]) -> None:
    """Raise ``ValueError`` if a tracker's package is not installed."""
    found = {str(getattr(tracker, "name", tracker)) for tracker in filter_trackers(list(names), ".")}
    for name in names:
        if name not in found:
            raise ValueError(f"tracker {name!r} is not installed: pip install {name}")


def start_trackers(accelerator: Accelerator, config: RunConfig) -> None:
    """Open the trackers of a config, with the whole config as the run's parameters."""
    if config.trackers:
        accelerator.init_trackers("vit_rpe", config=_flat(asdict(config)))
