"""The recipe of a cell: every option that decides its result, so that two recipes never end in one table unseen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vit_rpe.encodings import parse_specs
from vit_rpe.study.plan import Cell, StudyConfig
from vit_rpe.training.checkpoint.belonging import flat
from vit_rpe.training.checkpoint.resume import PLACES
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.config.schema import RunConfig
from vit_rpe.training.model import meta_model, plan_model
from vit_rpe.training.optim import learns_position

ONLY_HOW = (
    *PLACES,
    *("train.compile", "train.grad_checkpointing", "data.download", "data.val_path", "data.eval_batch_size"),
    *("data.persistent_workers", "data.start_method", "data.pin_memory", "data.prefetch_factor"),
    "model.args.attn_impl",
)
"""Options that say where and how something is computed and read, not what."""

Recipe = dict[str, Any]


def recipe_of(config: Mapping[str, Any]) -> Recipe:
    """The options of a config (``asdict(RunConfig)``, or ``config.yaml``) that differ from the defaults and decide the
    result; encodings in one form."""
    recipe = _whole(config)
    usual = _whole(asdict(RunConfig()))
    return {key: value for key, value in recipe.items() if key not in usual or usual[key] != value}


def differences(before: Recipe, now: Recipe) -> list[str]:
    """One phrase for each option in which two recipes differ, with both values."""
    usual = _whole(asdict(RunConfig()))
    old, new = {**usual, **before}, {**usual, **now}
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{key} was {_text(old.get(key))}, is {_text(new.get(key))}" for key in keys]


def _whole(config: Mapping[str, Any]) -> Recipe:
    found = flat(dict(config))
    for key, value in (found.pop("model.args", None) or {}).items():
        found[f"model.args.{key}"] = list(value) if isinstance(value, tuple) else value
    rpe = found.get("model.rpe")
    found["model.rpe"] = None if rpe is None else parse_specs(rpe)
    return {key: value for key, value in found.items() if key not in ONLY_HOW}


def _text(value: Any) -> str:
    return json.dumps(value, default=str)


class Recipes:
    """The training configs of a study, each resolved once when it is asked for."""

    def __init__(self, study: StudyConfig) -> None:
        self.study = study
        self._made: dict[tuple[str, str], RunConfig] = {}
        self.left_out: dict[str, float] = {}
        """``train.position_lr`` by the label of variants that learn no position, for which it is 1 instead."""

    def config(self, cell: Cell) -> RunConfig:
        """The config of the training behind a cell; its output is no place.

        Raises:
            ValueError: options or a model that are wrong, told with the variant's label.
        """
        label = cell.variant.trained_as or cell.variant.label
        key = (label, json.dumps(cell.img_size))
        if key not in self._made:
            (variant,) = [variant for variant in self.study.variants if variant.label == label]
            try:
                self._made[key] = self._resolved(replace(cell, variant=variant))
            except ValueError as error:
                raise ValueError(f"variant {label} of {self.study.name}: {error}") from error
        found = self._made[key]
        train, data = replace(found.train, seed=cell.seed), replace(found.data, fraction=cell.fraction)
        return replace(found, train=train, data=data)

    def _resolved(self, cell: Cell) -> RunConfig:
        config = parse_config(cell.words(self.study, Path("unused")), prog="study")
        rate = config.train.position_lr
        if rate != 1 and not learns_position(meta_model(plan_model(config.model, config.data))):
            self.left_out[cell.variant.label] = rate
            config = replace(config, train=replace(config.train, position_lr=1.0))
        return config

    def words(self, cell: Cell, folder: Path) -> list[str]:
        """The training command line of a cell."""
        self.config(cell)
        own = ["--train.position_lr=1"] if cell.variant.label in self.left_out else []
        return [*cell.words(self.study, folder), *own]

    def recipe(self, cell: Cell) -> Recipe:
        """What decides the result of the training behind a cell."""
        return recipe_of(asdict(self.config(cell)))

    def check(self, cell: Cell) -> None:
        """Refuse a model that cannot be built, or that cannot read the weights of the variant it names.

        Raises:
            ValueError: names the variant, and a parameter that differs.
        """
        config = self.config(cell)
        try:
            plan_model(config.model, config.data)
            if cell.trained_as is not None:
                self._check_reading(cell, config)
        except ValueError as error:
            raise ValueError(f"variant {cell.variant.label} of {self.study.name}: {error}") from error

    def _check_reading(self, cell: Cell, config: RunConfig) -> None:
        model = replace(config.model, rpe=cell.variant.rpe, args={**config.model.args, **cell.variant.args})
        theirs, own = (
            {name: tuple(value.shape) for name, value in meta_model(plan_model(it, config.data)).state_dict().items()}
            for it in (config.model, model)
        )
        for name in {**theirs, **own}:
            if theirs.get(name) != own.get(name):
                raise ValueError(
                    f"it cannot read what {cell.variant.trained_as} trained: {name} is "
                    f"{theirs.get(name, 'absent')} there and {own.get(name, 'absent')} here"
                )
