"""Folders of images, one folder per class: any such folder, and ImageNet.

    path/train/<class>/**/<image>   and   path/val/<class>/**/<image>    (val, valid, validation or test)
    path/<class>/**/<image>                                              (a stratified share is held out)

A file counts by its extension; what is in it is seen when it is read. Hidden files and folders are left out.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from vit_rpe.data.classes import class_numbers, natural_order
from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.sources.base import DataSource, FileImages
from vit_rpe.data.sources.paths import PathTable
from vit_rpe.data.sources.statistics import IMAGENET

__all__ = ["folder", "imagenet"]

_EXTENSIONS = frozenset(
    [
        ".avif",
        ".bmp",
        ".gif",
        ".jfif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pbm",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    ]
)
_VAL_NAMES = ("val", "valid", "validation", "test")
_CROP_PCT = 0.9


def folder(config: ImageData) -> DataSource:
    """The images below ``path`` (and ``val_path``)."""
    if config.path is None:
        raise DataNotFoundError("data.name=folder needs --data.path, a folder with one folder of images per class")
    root = _existing(Path(config.path))
    train, val = _layout(root)
    if config.val_path:
        val = _existing(Path(config.val_path))
    return _source(train, val)


def imagenet(config: ImageData) -> DataSource:
    """ImageNet-1k or a set laid out like it: ``train/`` and ``val/`` with one folder per class."""
    root = Path(config.path or "data/imagenet")
    for split in ("train", "val"):
        if not (root / split).is_dir():
            raise DataNotFoundError(
                f"no ImageNet in {root}: expected {root / split}/<class>/<image>; download it from image-net.org "
                "(registration needed), unpack it and give --data.path"
            )
    if any(entry.is_file() and _is_image(entry.name) for entry in _entries(str(root / "val"))):
        raise DataNotFoundError(
            f"the validation images lie directly in {root / 'val'}; move each into the folder of its class, "
            f"{root / 'val'}/<class>/<image>"
        )
    return _source(root / "train", root / "val")


def _existing(path: Path) -> Path:
    if not path.is_dir():
        nearest = next((parent for parent in path.parents if parent.is_dir()), Path("."))
        raise DataNotFoundError(f"no folder {path}; it exists up to {nearest}")
    return path


def _layout(root: Path) -> tuple[Path, Path | None]:
    train = root / "train"
    if not train.is_dir():
        return root, None
    return train, next((root / name for name in _VAL_NAMES if (root / name).is_dir()), None)


def _source(train: Path, val: Path | None) -> DataSource:
    found = _scan(train)
    if not any(found.values()):
        raise DataNotFoundError(
            f"no images in {train}: expected {train}/<class>/<image> ({' '.join(sorted(_EXTENSIONS))})"
        )
    class_names = natural_order(found)
    mean, std = IMAGENET
    return DataSource(
        train=_images(found, class_names, "training"),
        val=None if val is None else _images(_scan(val), class_names, "validation"),
        class_names=class_names,
        mean=mean,
        std=std,
        crop_pct=_CROP_PCT,
    )


def _images(found: dict[str, list[str]], class_names: list[str], split: str) -> FileImages:
    empty = natural_order(name for name in found if not found[name] and name not in class_names)
    if empty:
        warnings.warn(f"{split} has empty folders that are no class: {', '.join(empty[:10])}", stacklevel=2)
    order = natural_order(found)
    names = [name for name in order for _ in found[name]]
    paths = [path for name in order for path in found[name]]
    return FileImages(PathTable(paths), class_numbers(names, class_names, split=split))


def _scan(root: Path) -> dict[str, list[str]]:
    """Class name to the paths of its images, in natural order."""
    found: dict[str, list[str]] = {}
    for entry in _entries(str(root)):
        if entry.is_dir() and not entry.name.startswith((".", "__")):
            found[entry.name] = natural_order(_walk(entry.path, set()))
    return found


def _walk(path: str, above: set[tuple[int, int]]) -> list[str]:
    """Images below ``path``; links are followed, but not in a circle."""
    status = os.stat(path)
    here = (status.st_dev, status.st_ino)
    if here in above:
        return []
    images = []
    for entry in _entries(path):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            images += _walk(entry.path, above | {here})
        elif _is_image(entry.name):
            images.append(entry.path)
    return images


def _entries(path: str) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return list(entries)


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in _EXTENSIONS
