"""What a study runs: its config, and the grid of cells it stands for."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from vit_rpe.checks import closest
from vit_rpe.training.config.shipped import find_config
from vit_rpe.training.config.yaml_text import read_yaml

Size = int | list[int] | None


@dataclass(frozen=True)
class Variant:
    """One competitor: a label, its encoding, and further model arguments."""

    label: str
    rpe: Any = "none"
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyConfig:
    """A study file.

    Attributes:
        name: of the study; also its folder under ``runs/study``.
        base: the training config all cells share, by shipped name or file.
        variants: the encodings compared.
        seeds: each runs every variant once.
        fractions: shares of the training data.
        img_sizes: image sides in pixels; null keeps the base's.
        baseline: label of the variant the others are compared with, seed by seed.
        overrides: options of the base that the study changes, dotted: ``{"train.epochs": 40}``.
        eval_sizes: image sides at which each trained model is also evaluated, without further training.
        eval_shifts: shifts of the image in pixels at which each trained model is also evaluated.
        threads: CPU threads of a cell.
        hardware: a sentence for the report, where the cost was estimated and not measured.
    """

    name: str
    base: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (0,)
    fractions: tuple[float, ...] = (1.0,)
    img_sizes: tuple[Size, ...] = (None,)
    baseline: str = "none"
    overrides: dict[str, Any] = field(default_factory=dict)
    eval_sizes: tuple[int, ...] = ()
    eval_shifts: tuple[int, ...] = ()
    threads: int = 1
    hardware: str = ""


@dataclass(frozen=True)
class Cell:
    """One training run of a study."""

    variant: Variant
    seed: int
    fraction: float = 1.0
    img_size: Size = None

    @property
    def name(self) -> str:
        """Folder name, unique in the study: ``rope-f0.5-s32-seed1``, without the parts that are the default."""
        parts = [self.variant.label]
        parts += [f"f{self.fraction:g}"] if self.fraction != 1.0 else []
        parts += ["s" + "x".join(map(str, _pair(self.img_size)))] if self.img_size is not None else []
        return "-".join([*parts, f"seed{self.seed}"])

    def words(self, study: StudyConfig, folder: Path) -> list[str]:
        """The training command line of this cell."""
        words = [
            f"--config={study.base}",
            *(f"--{key}={_yaml(value)}" for key, value in study.overrides.items()),
            f"--model.rpe={_yaml(self.variant.rpe)}",
            f"--train.seed={self.seed}",
            f"--data.fraction={self.fraction}",
            f"--output={folder}",
            "--resume=auto",
            "--pictures=false",
        ]
        words += [f"--model.args.{key}={_yaml(value)}" for key, value in self.variant.args.items()]
        return words + ([f"--model.img_size={_yaml(self.img_size)}"] if self.img_size is not None else [])


def read_study(path: str | Path) -> StudyConfig:
    """Read and check a study by shipped name (``study/digits``) or file.

    Raises:
        ValueError: no such file, an unknown key, a repeated label, or a baseline that is no variant.
    """
    file = find_config(str(path), study=True)
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold keys and values, got a {type(content).__name__}")
    known = {item.name for item in fields(StudyConfig)}
    for key in content:
        if key not in known:
            hint = closest(str(key), known)
            raise ValueError(f"unknown key {key!r} in {file}{hint}; known: {', '.join(sorted(known))}")
    for key in ("name", "base", "variants"):
        if not content.get(key):
            raise ValueError(f"{file} needs the key {key!r}")
    variants = tuple(_variant(item, file) for item in content.pop("variants"))
    lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    study = StudyConfig(variants=variants, **lists)
    labels = [variant.label for variant in variants]
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    if repeated:
        raise ValueError(f"{file} has more than one variant labelled {', '.join(repeated)}: give each its own label")
    if study.baseline not in labels:
        raise ValueError(f"baseline {study.baseline!r} is no variant of {file}{closest(study.baseline, labels)}")
    find_config(study.base)
    return study


def cells_of(study: StudyConfig, only: Sequence[str] = ()) -> list[Cell]:
    """The grid, seed by seed, so that a study cut short has whole rounds.

    Args:
        only: shell patterns over cell names (``rope*``, ``*seed0``); empty for all.

    Raises:
        ValueError: a pattern that fits no cell.
    """
    cells = [
        Cell(variant, seed, fraction, size)
        for seed, fraction, size, variant in product(study.seeds, study.fractions, study.img_sizes, study.variants)
    ]
    names = [cell.name for cell in cells]
    for pattern in only:
        if not fnmatch.filter(names, pattern):
            hint = closest(pattern, names)
            raise ValueError(f"--only {pattern!r} fits no cell{hint}; the first are: {', '.join(names[:6])}")
    return [cell for cell in cells if not only or any(fnmatch.fnmatch(cell.name, pattern) for pattern in only)]


def _variant(item: Any, file: Path) -> Variant:
    if isinstance(item, str):
        return Variant(item, item)
    known = ("label", "rpe", "args")
    if not isinstance(item, dict) or "label" not in item or any(key not in known for key in item):
        raise ValueError(f"a variant in {file} must be a name or a mapping of {', '.join(known)}, got {item!r}")
    return Variant(**item)


def _yaml(value: Any) -> str:
    """A value as the command line takes it: text as it is, the rest as YAML."""
    return value if isinstance(value, str) else json.dumps(value)


def _pair(size: Size) -> list[int]:
    return list(size) if isinstance(size, list) else [size] if size is not None else []
