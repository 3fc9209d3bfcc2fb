"""Options of training that have an effect only beside certain others; without those they are refused.

What is left at its default counts as not given: the config in a run folder holds every option.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import timm.optim

from vit_rpe.training.config.schema import RunConfig, TrainConfig

__all__ = ["check_effects"]

_NO_END = ("constant", "multistep", "none", "step")
"""Schedules that do not go down to a smallest rate."""
_OFF = {"warmup_epochs": 0, "label_smoothing": 0}
"""Values that say that there is none of it, which is true wherever the option has no effect."""

Reason = Callable[[TrainConfig], "str | None"]


def _optimizer_lacks(trait: str) -> Reason:
    def reason(train: TrainConfig) -> str | None:
        has = getattr(timm.optim.get_optimizer_info(train.optimizer.lower()), trait)
        return None if has else f"train.optimizer={train.optimizer}, which has none"

    return reason


def _schedule_in(*names: str) -> Reason:
    return lambda train: f"train.schedule={train.schedule}" if train.schedule in names else None


def _no_warm_up(train: TrainConfig) -> str | None:
    return None if train.warmup_epochs else "train.warmup_epochs=0"


def _no_average(train: TrainConfig) -> str | None:
    return "train.ema_decay=null" if train.ema_decay is None else None


def _no_teacher(train: TrainConfig) -> str | None:
    return "train.distill.teacher=null" if train.distill.teacher is None else None


def _teacher_ignored(train: TrainConfig) -> str | None:
    return "train.distill.weight=0" if train.distill.weight == 0 else None


def _teacher_alone(train: TrainConfig) -> str | None:
    return "train.distill.weight=1" if train.distill.teacher is not None and train.distill.weight == 1 else None


def _teacher_is_a_run(train: TrainConfig) -> str | None:
    given = train.distill.teacher
    return f"the run train.distill.teacher={given}" if given is not None and Path(given).exists() else None


def _hard(train: TrainConfig) -> str | None:
    return "train.distill.hard=true" if train.distill.hard else None


def _other_weights(train: TrainConfig) -> str | None:
    return None if train.distill.checkpoint is None else "train.distill.checkpoint, whose weights are taken"


_WITHOUT_EFFECT: dict[str, tuple[Reason, ...]] = {
    "momentum": (_optimizer_lacks("has_momentum"),),
    "betas": (_optimizer_lacks("has_betas"),),
    "warmup_epochs": (_schedule_in("none"),),
    "warmup_lr": (_schedule_in("none"), _no_warm_up),
    "min_lr": (_schedule_in(*_NO_END),),
    "ema_warmup": (_no_average,),
    "loss": (_teacher_alone,),
    "label_smoothing": (_teacher_alone,),
    "distill.weight": (_no_teacher,),
    "distill.temperature": (_no_teacher, _teacher_ignored, _hard),
    "distill.hard": (_no_teacher, _teacher_ignored),
    "distill.pretrained": (_no_teacher, _teacher_is_a_run, _other_weights),
    "distill.checkpoint": (_no_teacher, _teacher_is_a_run),
}
"""By option: what makes it have no effect, each in words or None."""


def _value(train: TrainConfig, option: str) -> Any:
    found: Any = train
    for name in option.split("."):
        found = getattr(found, name)
    return tuple(found) if isinstance(found, list) else found


def _problems(train: TrainConfig) -> Iterator[str]:
    default = TrainConfig()
    for option, reasons in _WITHOUT_EFFECT.items():
        given, usual = _value(train, option), _value(default, option)
        if given == usual or (option in _OFF and given == _OFF[option]):
            continue
        for reason in reasons:
            words = reason(train)
            if words is not None:
                back = _OFF.get(option, usual)
                back = "null" if back is None else str(back).lower() if isinstance(back, bool) else back
                yield (
                    f"train.{option}={given!r} has no effect with {words}: leave it out (where a config gives it, "
                    f"--train.{option} {back} takes it back)"
                )


def _check_betas(train: TrainConfig) -> None:
    if train.betas is None:
        return
    for beta in train.betas:
        if not 0 <= beta < 1:
            raise ValueError(f"train.betas must lie from 0 to below 1, got {list(train.betas)}")
    kind = timm.optim.get_optimizer_info(train.optimizer.lower()).opt_class
    taken = None if isinstance(kind, str) else inspect.signature(kind).parameters.get("betas")
    if taken is not None and isinstance(taken.default, tuple) and len(taken.default) != len(train.betas):
        raise ValueError(
            f"train.betas gives {len(train.betas)} numbers, but train.optimizer={train.optimizer} takes "
            f"{len(taken.default)}, {list(taken.default)} of its own: leave train.betas out"
        )


def _check_rates(train: TrainConfig) -> None:
    """The rate rises to ``lr`` in the warm-up and falls from there to ``min_lr``."""
    used = {"warmup_lr": train.warmup_epochs > 0, "min_lr": train.schedule not in _NO_END}
    for option, is_used in used.items():
        given = getattr(train, option)
        if is_used and train.schedule != "none" and given > train.lr:
            where = "begin" if option == "warmup_lr" else "end"
            raise ValueError(
                f"train.{option}={given:g} is above train.lr={train.lr:g}: training would {where} above its "
                f"top rate; give --train.{option} a value up to train.lr"
            )


def check_effects(config: RunConfig) -> None:
    """Refuse options that would change nothing beside the others.

    Raises:
        ValueError: names the option, its value and what takes its effect away or contradicts it.
    """
    for problem in _problems(config.train):
        raise ValueError(problem)
    _check_betas(config.train)
    _check_rates(config.train)
    if config.overwrite and config.resume is not None:
        raise ValueError(f"overwrite=true has no effect with resume={config.resume}: give one of them")
