"""What a study runs: its config, and the grid of cells it stands for."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from vit_rpe.checks import closest
from vit_rpe.training.config.parse import option_texts
from vit_rpe.training.config.shipped import find_config
from vit_rpe.training.config.yaml_text import load_yaml, read_yaml

Size = int | list[int] | None
SECTIONS = ("model.", "data.", "train.")
"""Options of the training command that a study takes."""
MOST_LINES = 11
"""More lines than this cannot be told apart in one plot."""


@dataclass(frozen=True)
class Variant:
    """One competitor: a label, its encoding, and further model arguments.

    With ``trained_as``, the label of another variant, nothing is trained: that one's weights are read with this
    encoding and these arguments.
    """

    label: str
    rpe: Any = "none"
    args: dict[str, Any] = field(default_factory=dict)
    trained_as: str | None = None


@dataclass(frozen=True)
class StudyConfig:
    """A study file.

    Attributes:
        name: of the study; also its folder under ``runs/study``.
        base: the training config all cells share, by shipped name or file.
        variants: the encodings compared, the most important first.
        seeds: each runs every variant once.
        fractions: shares of the training data.
        img_sizes: image sides in pixels; null keeps the base's.
        baseline: label of the variant the others are compared with, seed by seed.
        overrides: options of the base that the study changes, dotted: ``{"train.epochs": 40}``.
        eval_sizes: image sides at which each trained model is also evaluated, without further training.
        eval_shifts: shifts of the image in pixels at which each trained model is also evaluated.
        eval_images: so many test images for these evaluations, evenly spread; null for all.
        pictures: further pictures by name, each of a few variants: ``{scaling: [rope, rope_yarn]}``.
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
    eval_images: int | None = None
    pictures: dict[str, list[str]] = field(default_factory=dict)
    threads: int = 1
    hardware: str = ""


@dataclass(frozen=True)
class Cell:
    """One training run of a study, or one reading of what such a run trained."""

    variant: Variant
    seed: int
    fraction: float = 1.0
    img_size: Size = None

    @property
    def name(self) -> str:
        """Folder name, unique in the study: ``rope-f0.5-s32-seed1``, without the parts that are the default."""
        return self._name(self.variant.label)

    @property
    def trained_as(self) -> str | None:
        """Name of the cell whose weights this one reads; None where it trains its own."""
        return None if self.variant.trained_as is None else self._name(self.variant.trained_as)

    def _name(self, label: str) -> str:
        parts = [label]
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


def read_study(path: str | Path, options: Sequence[str] = ()) -> StudyConfig:
    """Read and check a study by shipped name (``study/digits``) or file.

    Args:
        options: words of a training command line (``--data.path``, ``FOLDER``, ...) that change every cell.

    Raises:
        ValueError: no such file, an unknown key or option, a repeated label, a baseline that is no variant, or an
            option that the study itself varies.
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
    _check_labels(study, file)
    find_config(study.base)
    return _changed(study, option_texts(options, study.base)) if options else study


def _check_labels(study: StudyConfig, file: Path) -> None:
    by_label = {variant.label: variant for variant in study.variants}
    labels = [variant.label for variant in study.variants]
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    if repeated:
        raise ValueError(f"{file} has more than one variant labelled {', '.join(repeated)}: give each its own label")
    named = {study.baseline: "baseline"}
    named |= {label: f"in the picture {name!r}" for name, members in study.pictures.items() for label in members}
    named |= {
        variant.trained_as: f"trained_as of {variant.label!r}" for variant in study.variants if variant.trained_as
    }
    for label, role in named.items():
        if label not in by_label:
            raise ValueError(f"{role} {label!r} is no variant of {file}{closest(label, labels)}")
    for variant in study.variants:
        if variant.trained_as is not None and by_label[variant.trained_as].trained_as is not None:
            source = by_label[variant.trained_as].trained_as
            raise ValueError(f"{variant.label} in {file} is trained as {variant.trained_as}, which trains nothing: "
                             f"name {source}")  # fmt: skip
    for name, members in study.pictures.items():
        if len(members) > MOST_LINES:
            raise ValueError(
                f"the picture {name!r} of {file} has {len(members)} lines, at most {MOST_LINES} are legible"
            )


def _changed(study: StudyConfig, options: dict[str, str]) -> StudyConfig:
    """The study with options of the command line in place of its own."""
    own = {
        "model.rpe": "variants",
        "train.seed": "seeds",
        "data.fraction": "fractions",
        **({"model.img_size": "img_sizes"} if study.img_sizes != (None,) else {}),
        **{f"model.args.{key}": "variants" for variant in study.variants for key in variant.args},
    }
    for key in _single_options(options):
        if key in own:
            raise ValueError(f"--{key} is what the study varies ({own[key]}): --only chooses among its cells")
        if not key.startswith(SECTIONS):
            raise ValueError(
                f"--{key} is of no single cell: the options of a recipe are those of {', '.join(SECTIONS)}"
            )
    kept = {key: value for key, value in study.overrides.items() if key not in options}
    return replace(study, overrides={**kept, **options})


def _single_options(options: dict[str, str]) -> Iterator[str]:
    """The keys, with those inside of ``model.args`` given as a whole."""
    for key, text in options.items():
        inside = load_yaml(text) if key == "model.args" else None
        yield from (f"model.args.{name}" for name in inside) if isinstance(inside, dict) else (key,)


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
    known = [each.name for each in fields(Variant)]
    if not isinstance(item, dict) or "label" not in item or any(key not in known for key in item):
        raise ValueError(f"a variant in {file} must be a name or a mapping of {', '.join(known)}, got {item!r}")
    return Variant(**item)


def _yaml(value: Any) -> str:
    """A value as the command line takes it: text as it is, the rest as YAML."""
    return value if isinstance(value, str) else json.dumps(value)


def _pair(size: Size) -> list[int]:
    return list(size) if isinstance(size, list) else [size] if size is not None else []
