"""Hugging Face data sets by name or from disk, and local parquet files, through the ``datasets`` package.

The image column is the first of type ``Image``; the label column is the only ``ClassLabel``, or the one
called label, labels or class. ``data.image_key`` and ``data.label_key`` decide where that is not enough.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

from vit_rpe.checks import check_choice
from vit_rpe.data.account import Account
from vit_rpe.data.classes import check_label, class_numbers, natural_order, unique
from vit_rpe.data.errors import DataNotFoundError, printable
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.sources.base import DataSource
from vit_rpe.data.sources.paths import files_below, named_files
from vit_rpe.data.sources.splits import apart, by_split, once, split_of
from vit_rpe.data.sources.statistics import IMAGENET

__all__ = ["hf", "parquet"]

_LABEL_NAMES = ("label", "labels", "class")


@dataclass(frozen=True)
class _RowImages:
    """Rows of a ``datasets.Dataset`` whose image column is not decoded."""

    rows: Any
    image_key: str
    labels: np.ndarray
    origin: str

    def image(self, index: int) -> Any:
        value = self.rows[index][self.image_key]
        if isinstance(value, dict):
            value = value.get("bytes") or value.get("path")
        if value is None:
            raise ValueError("the row holds no image")
        return io.BytesIO(value) if isinstance(value, bytes) else value

    def name(self, index: int) -> str:
        return f"{self.origin}[{index}]"


def hf(config: ImageData) -> DataSource:
    """The data set ``path``: a name on the hub, or a folder written by ``save_to_disk``."""
    datasets = _package(config)
    if config.path is None:
        raise DataNotFoundError("data.name=hf needs --data.path, the name of a data set such as user/name")
    try:
        if any((Path(config.path) / name).is_file() for name in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(config.path)
        else:
            with _few_tries(datasets, config.path):
                loaded = datasets.load_dataset(config.path)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        advice = (
            "A folder must be one that save_to_disk wrote; for others take --data.name parquet or folder"
            if Path(config.path).exists()
            else f"By hand: fetch its parquet files from https://huggingface.co/datasets/{config.path} and give "
            "--data.name parquet --data.path FOLDER"
        )
        raise DataNotFoundError(f"cannot load the Hugging Face data set {config.path!r}: {reason}. {advice}") from error
    splits = loaded if isinstance(loaded, dict) else {"train": loaded}
    account = Account()
    chosen: dict[str, str] = {}
    for name in splits:
        role = split_of(name)
        if role in chosen:
            raise ValueError(f"{config.path!r} has two splits for one: {chosen[role]} and {name}")
        if role is not None:
            chosen[role] = name
    if "train" not in chosen:
        raise DataNotFoundError(f"{config.path!r} has no split train; it has {', '.join(splits)}")
    held = next((role for role in ("val", "test") if role in chosen), None)
    for name, rows in splits.items():
        if name not in (chosen["train"], chosen.get(held or "")):
            account.leave_out("rows of another split", name, len(rows))
    val = splits[chosen[held]] if held else None
    return _source(config, datasets, splits[chosen["train"]], val, "test" if held == "test" else "validation", account)


@contextmanager
def _few_tries(datasets: Any, name: str) -> Iterator[None]:
    """Ask once whether the hub can be reached; if not, only what was fetched before is looked for, without the tries
    over a minute that the packages make."""
    before = datasets.config.HF_HUB_OFFLINE
    try:
        if not before and not Path(name).exists():
            with suppress(HTTPError), urlopen(datasets.config.HF_ENDPOINT, timeout=10):
                pass
    except OSError:
        datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def parquet(config: ImageData) -> DataSource:
    """The rows of ``path`` (and ``val_path``): a file, a pattern, or a folder with ``train*`` and ``val*`` or
    ``test*`` files, or with files in folders of these names."""
    datasets, account = _package(config), Account()
    if config.path is None:
        raise DataNotFoundError("data.name=parquet needs --data.path, a file, a pattern or a folder")
    given = [path for path, _ in _parquet_files(config.val_path)] if config.val_path else []
    files, val_files, word = by_split(_parquet_files(config.path), account, given=bool(given))
    val_files = once(given or val_files, account)
    files = once(apart(files, val_files, account, what=f"data.path={config.path!r}"), account)
    if not files:
        raise DataNotFoundError(f"data.path={printable(config.path)!r} names no training file")
    train = _read_parquet(datasets, files)
    return _source(config, datasets, train, _read_parquet(datasets, val_files) if val_files else None, word, account)


def _parquet_files(word: str) -> list[tuple[str, str]]:
    """Paths that ``word`` names, and what by_split needs."""
    found = sorted(files_below(word, ".parquet")) if Path(word).is_dir() else named_files(word)
    if not found:
        raise DataNotFoundError(f"no parquet files match {printable(word)!r}")
    return found


def _package(config: ImageData) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise DataNotFoundError(
            f"data.name={config.name} needs the package datasets; install it with: pip install datasets"
        ) from error
    return datasets


def _read_parquet(datasets: Any, files: list[str]) -> Any:
    try:
        paths = [escape(os.path.realpath(file)) for file in files]  # it takes every name for a pattern
        return datasets.load_dataset("parquet", data_files=paths, split="train")
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        cause = error.__cause__ or error
        raise DataNotFoundError(f"cannot read parquet files {printable(files[0])} ...: {cause}") from error


def _source(config: ImageData, datasets: Any, train: Any, val: Any, word: str, account: Account) -> DataSource:
    image_key = config.image_key or _image_column(datasets, train)
    label_key = config.label_key or _label_column(datasets, train)
    for split, rows in (("training", train), (word, val)):
        for option, key in (("data.image_key", image_key), ("data.label_key", label_key)):
            if rows is not None:
                check_choice(option if rows is train else f"{option} of the {split} rows", key, rows.column_names)
    declared = getattr(train.features[label_key], "names", None)
    names = _label_names(train, label_key, declared)
    class_names = unique(declared, f"column {label_key!r}") if declared else natural_order(set(names))
    numbers = class_numbers(names, class_names, split="training")
    held = None
    if val is not None:
        val_names = _label_names(val, label_key, declared)
        held = _rows(datasets, val, image_key, class_numbers(val_names, class_names, split=word), config)
    mean, std = IMAGENET
    return DataSource(
        train=_rows(datasets, train, image_key, numbers, config),
        val=held,
        class_names=class_names,
        mean=mean,
        std=std,
        crop_pct=0.9,
        held_out=word,
        account=account,
    )


def _rows(datasets: Any, rows: Any, image_key: str, labels: np.ndarray, config: ImageData) -> _RowImages:
    if isinstance(rows.features[image_key], datasets.Image):
        rows = rows.cast_column(image_key, datasets.Image(decode=False))
    return _RowImages(rows.select_columns([image_key]), image_key, labels, f"{config.path}")


def _image_column(datasets: Any, rows: Any) -> str:
    found = [name for name, feature in rows.features.items() if isinstance(feature, datasets.Image)]
    found += [name for name in ("image", "img") if name in rows.column_names and name not in found]
    if not found:
        raise ValueError(f"no image column among {', '.join(rows.column_names)}; name it with data.image_key")
    return found[0]


def _label_column(datasets: Any, rows: Any) -> str:
    found = [name for name, feature in rows.features.items() if isinstance(feature, datasets.ClassLabel)]
    found = found or [name for name in _LABEL_NAMES if name in rows.column_names]
    if len(found) != 1:
        raise ValueError(
            f"{len(found)} label columns among {', '.join(rows.column_names)}; name one with data.label_key"
        )
    return found[0]


def _label_names(rows: Any, label_key: str, declared: list[str] | None) -> list[str]:
    """The class name of every row: by the column's own names, else by those ``declared`` for training, else as it is.

    So that numbers mean in every split what they mean in training.
    """
    table = getattr(rows.features[label_key], "names", None) or declared
    values = rows[label_key][:]
    for value in values:
        check_label(value, f"column {label_key!r}")
        if table and not isinstance(value, str) and value >= len(table):
            raise ValueError(f"column {label_key!r} holds the label {value}, it has the classes 0 to {len(table) - 1}")
    return [table[value] if table and not isinstance(value, str) else str(value) for value in values]
