"""Checks of a config's values that types cannot express."""

from __future__ import annotations

from dataclasses import fields
from math import isfinite

import timm.optim

from vit_rpe.checks import unknown_name
from vit_rpe.training.config.effect import check_effects
from vit_rpe.training.config.schema import RunConfig, TrainConfig

__all__ = ["SCHEDULES", "TRACKERS", "check_config"]

SCHEDULES = ("constant", "cosine", "multistep", "none", "poly", "rsqrt", "step", "tanh", "wsd")
TRACKERS = ("tensorboard", "trackio", "wandb")


def _at_least(key: str, value: float | None, smallest: float, *, strict: bool = False) -> None:
    if value is not None and (value < smallest or (strict and value == smallest)):
        relation = "more than" if strict else "at least"
        raise ValueError(f"{key} must be {relation} {smallest:g}, got {value}")


def _within(key: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise ValueError(f"{key} must lie between {low:g} and {high:g}, got {value}")


def _check_finite(section: object, key: str) -> None:
    """Refuse numbers that are none, in every field of a section: a comparison lets NaN pass."""
    for item in fields(section):  # type: ignore[arg-type]
        value = getattr(section, item.name)
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"{key}.{item.name} must be a finite number, got {value}")


def _check_train(train: TrainConfig) -> None:
    _check_finite(train, "train")
    _check_finite(train.distill, "train.distill")
    for name in ("epochs", "accumulate", "keep", "log_every", "checkpoint_every_steps", "pictures_every"):
        _at_least(f"train.{name}", getattr(train, name), 1)
    for name in ("weight_decay", "warmup_epochs", "warmup_lr", "min_lr"):
        _at_least(f"train.{name}", getattr(train, name), 0)
    for name in ("lr", "clip_grad", "layer_decay", "position_lr"):
        _at_least(f"train.{name}", getattr(train, name), 0, strict=True)
    for name in ("label_smoothing", "ema_decay", "layer_decay", "momentum"):
        _within(f"train.{name}", getattr(train, name), 0, 1)
    for name in ("ema_decay", "label_smoothing"):  # an average that never moves, a target that is the same for all
        if getattr(train, name) == 1:
            raise ValueError(f"train.{name} must be less than 1, got 1: nothing would be learned")
    _within("train.distill.weight", train.distill.weight, 0, 1)
    _at_least("train.distill.temperature", train.distill.temperature, 0, strict=True)
    _check_optimizer(train.optimizer)
    if train.schedule not in SCHEDULES:
        raise unknown_name("train.schedule", train.schedule, SCHEDULES)


def _check_optimizer(name: str) -> None:
    optimizers = [str(known) for known in timm.optim.list_optimizers()]
    if name.lower() not in optimizers:
        raise unknown_name("train.optimizer", name, optimizers)
    if timm.optim.get_optimizer_info(name.lower()).second_order:
        raise ValueError(f"train.optimizer={name} needs second derivatives, which training here does not compute")


def check_config(config: RunConfig) -> None:
    """Check values and names; the model's own options are checked when it is built.

    Raises:
        ValueError: names the key, the value given and what was expected.
    """
    _check_train(config.train)
    check_effects(config)
    for tracker in config.trackers:
        if tracker not in TRACKERS:
            raise unknown_name("trackers", tracker, TRACKERS)
