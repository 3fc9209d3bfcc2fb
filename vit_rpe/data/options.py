"""The data options of images and text alike: typed, JSON-able, checked before anything is read."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from math import isfinite
from typing import ClassVar

from vit_rpe.checks import check_choice

__all__ = ["OF_WORKERS", "DataOptions", "expect"]

_START_METHODS = ("fork", "spawn", "forkserver")
OF_WORKERS = ("persistent_workers", "start_method", "prefetch_factor")
"""Options that loader processes have, and do nothing without any."""


@dataclass(frozen=True)
class DataOptions:
    """Where samples come from and how they become batches; ``ImageData`` and ``TextData`` add what only they have.

    Args:
        name: data source; docs/data.md describes each
        path: where the files lie: a folder, a file or a pattern; for hf the hub name or a local data set
        val_path: the validation files where they are not found under ``path``
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
    """

    kind: ClassVar[str]  # what goes into the model: "images" or "text"

    name: str
    path: str | None = None
    val_path: str | None = None
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

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):  # JSON and YAML know lists only
                object.__setattr__(self, field.name, tuple(value))
            expect(field.name, value, not isinstance(value, float) or isfinite(value), "a finite number")
            if field.name in ("path", "val_path") and value is not None:  # no shell has seen what a file says
                object.__setattr__(self, field.name, os.path.expanduser(value))
        if self.start_method is not None:
            check_choice("data.start_method", self.start_method, _START_METHODS)
        for key in ("batch_size", "prefetch_factor"):
            expect(key, getattr(self, key), getattr(self, key) >= 1, "at least 1")
        expect("num_workers", self.num_workers, self.num_workers >= 0, "at least 0")
        for field in fields(self):
            if field.name in OF_WORKERS and not self.num_workers:
                given = getattr(self, field.name)
                expect(field.name, given, given == field.default, "data.num_workers of at least 1 beside it")
        eval_batch = self.eval_batch_size
        expect("eval_batch_size", eval_batch, eval_batch is None or eval_batch >= 1, "at least 1 or null")
        expect("val_fraction", self.val_fraction, 0 < self.val_fraction < 1, "between 0 and 1, both excluded")
        expect("fraction", self.fraction, 0 < self.fraction <= 1, "above 0, at most 1")


def expect(key: str, given: object, good: bool, expected: str) -> None:
    """Raise ``ValueError`` with the option ``data.key``, its value and what was expected unless it is ``good``."""
    if not good:
        raise ValueError(f"data.{key}={given!r}, expected {expected}")
