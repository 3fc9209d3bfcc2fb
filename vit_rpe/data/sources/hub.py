"""Hugging Face data sets by name or from disk, and local parquet files, through the ``datasets`` package.

The image column is the first of type ``Image``; the label column is the only ``ClassLabel``, or the one
called label, labels or class. ``data.image_key`` and ``data.label_key`` decide where that is not enough.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np

from vit_rpe.checks import check_choice
from vit_rpe.data.classes import class_numbers, natural_order
from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.sources.base import DataSource
from vit_rpe.data.sources.statistics import IMAGENET

__all__ = ["hf", "parquet"]

_VAL_NAMES = ("validation", "val", "valid", "test")
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
            loaded = datasets.load_dataset(config.path)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataNotFoundError(f"cannot load the Hugging Face data set {config.path!r}: {error}") from error
    splits = loaded if isinstance(loaded, dict) else {"train": loaded}
    if "train" not in splits:
        raise DataNotFoundError(f"{config.path!r} has no split train; it has {', '.join(splits)}")
    val = next((splits[name] for name in _VAL_NAMES if name in splits), None)
    return _source(config, datasets, splits["train"], val)


def parquet(config: ImageData) -> DataSource:
    """The rows of ``path`` (and ``val_path``): a file, a pattern, or a folder with ``train*`` and ``val*`` or
    ``test*`` files."""
    datasets = _package(config)
    if config.path is None:
        raise DataNotFoundError("data.name=parquet needs --data.path, a file, a pattern or a folder")
    root = Path(config.path)
    files, val_files = sorted(glob(config.path)), sorted(glob(config.val_path or ""))
    if root.is_dir():
        files = sorted(map(str, root.rglob("train*.parquet"))) or sorted(map(str, root.rglob("*.parquet")))
        if not val_files:
            by_name = [sorted(map(str, root.rglob(f"{name}*.parquet"))) for name in _VAL_NAMES]
            val_files = next((found for found in by_name if found), [])
    if not files or (config.val_path and not val_files):
        missing = config.path if not files else config.val_path
        raise DataNotFoundError(f"no parquet files match {missing!r}")
    train = _read_parquet(datasets, files)
    return _source(config, datasets, train, _read_parquet(datasets, val_files) if val_files else None)


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
        return datasets.load_dataset("parquet", data_files=files, split="train")
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        cause = error.__cause__ or error
        raise DataNotFoundError(f"cannot read parquet files {files[0]} ...: {cause}") from error


def _source(config: ImageData, datasets: Any, train: Any, val: Any) -> DataSource:
    image_key = config.image_key or _image_column(datasets, train)
    label_key = config.label_key or _label_column(datasets, train)
    for option, key in (("data.image_key", image_key), ("data.label_key", label_key)):
        check_choice(option, key, train.column_names)
    names = _label_names(train, label_key)
    declared = getattr(train.features[label_key], "names", None)
    class_names = list(declared) if declared else natural_order(set(names))
    mean, std = IMAGENET
    return DataSource(
        train=_rows(datasets, train, image_key, class_numbers(names, class_names, split="training"), config),
        val=None
        if val is None
        else _rows(
            datasets,
            val,
            image_key,
            class_numbers(_label_names(val, label_key), class_names, split="validation"),
            config,
        ),
        class_names=class_names,
        mean=mean,
        std=std,
        crop_pct=0.9,
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


def _label_names(rows: Any, label_key: str) -> list[str]:
    declared = getattr(rows.features[label_key], "names", None)
    values = rows[label_key][:]
    for value in values:
        if value is None or (declared and not 0 <= value < len(declared)):
            raise ValueError(f"column {label_key!r} holds the label {value}: a split without labels?")
    return [declared[value] for value in values] if declared else [str(value) for value in values]
