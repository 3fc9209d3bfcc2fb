"""Folders of images, one folder per class: any such folder, and ImageNet.

    path/train/<class>/**/<image>   and   path/val/<class>/**/<image>    (names of splits: see splits.py)
    path/<class>/**/<image>                                              (a stratified share is held out)

A folder that can be read in both ways is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from unicodedata import normalize

import numpy as np

from vit_rpe.data.account import Account
from vit_rpe.data.classes import class_numbers, natural_order
from vit_rpe.data.errors import DataNotFoundError, printable
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.images.files import ENDINGS, entries, images_below, is_hidden, is_image, left_because
from vit_rpe.data.sources.base import DataSource, FileImages
from vit_rpe.data.sources.paths import PathTable
from vit_rpe.data.sources.splits import split_of
from vit_rpe.data.sources.statistics import IMAGENET

__all__ = ["folder", "imagenet"]

_CROP_PCT = 0.9
_EMPTY_SPLIT = "folders of splits without an image"


def folder(config: ImageData) -> DataSource:
    """The images below ``path`` (and ``val_path``)."""
    if config.path is None:
        raise DataNotFoundError("data.name=folder needs --data.path, a folder with one folder of images per class")
    account = Account()
    given = None if config.val_path is None else _existing(Path(config.val_path))
    train, val, word = _layout(_existing(Path(config.path)), given, account)
    return _source(train, val, word, account)


def imagenet(config: ImageData) -> DataSource:
    """ImageNet-1k or a set laid out like it: ``train/`` and ``val/`` with one folder per class."""
    root, account = Path(config.path or "data/imagenet"), Account()
    for split in ("train", "val"):
        if not (root / split).is_dir():
            raise DataNotFoundError(
                f"no ImageNet in {printable(root)}: expected {printable(root / split)}/<class>/<image>; download it "
                "from image-net.org (registration needed), unpack it and give --data.path"
            )
    for entry in entries(str(root)):
        if entry.name not in ("train", "val"):
            account.leave_out(left_because(entry, "beside the folders of splits"), printable(entry.path))
    return _source(str(root / "train"), str(root / "val"), "validation", account)


def _existing(path: Path) -> Path:
    if not path.is_dir():
        nearest = next((parent for parent in path.parents if parent.is_dir()), Path("."))
        raise DataNotFoundError(f"no folder {printable(path)}; it exists up to {printable(nearest)}")
    return path


def _layout(root: Path, given: Path | None, account: Account) -> tuple[str, str | None, str]:
    """The folder of training classes, that of validation classes if there is one, and the word for the latter."""
    folders: dict[str | None, list[str]] = {"train": [], "val": [], "test": [], None: []}
    for entry in sorted(entries(str(root)), key=lambda entry: entry.name):
        role = split_of(entry.name)
        elsewhere = role != "train" and given and entry.is_dir() and os.path.samefile(entry.path, given)
        if entry.is_dir() and not is_hidden(entry.name) and not elsewhere and (role is None or _has_images(entry.path)):
            folders[role].append(entry.path)
    found = [path for split in ("train", "val", "test") for path in folders[split]]
    if not found:
        return str(root), str(given) if given else None, "validation"
    classes = [path for path in folders[None] if _has_images(path)]
    for entry in entries(str(root)):
        if entry.is_dir() and not is_hidden(entry.name) and split_of(entry.name) and not _has_images(entry.path):
            account.leave_out(_EMPTY_SPLIT, printable(entry.path))
        elif not entry.is_dir() or is_hidden(entry.name) or entry.path in folders[None]:
            account.leave_out(left_because(entry, "beside the folders of splits"), printable(entry.path))
    if classes or not folders["train"]:
        _refuse_both_readings(root, found, classes)
    for split in ("train", "val", "test"):
        if len(folders[split]) > 1:
            names = ", ".join(f"{os.path.basename(path)}/" for path in folders[split])
            raise ValueError(f"{printable(root)} has two folders for one split: {printable(names)}; rename one")
    (train,) = folders["train"]
    held = None if given else next((split for split in ("val", "test") if _labelled(folders[split])), None)
    if held is None and not given and folders["val"]:
        raise DataNotFoundError(
            f"{printable(folders['val'][0])} has images but no folder of a class; move each into the folder of its "
            f"class, {printable(folders['val'][0])}/<class>/<image>"
        )
    for split in ("val", "test"):
        if split != held and folders[split]:
            reason = "folders without classes" if not given and not folders["val"] else "folders of another split"
            account.leave_out(reason, printable(folders[split][0]))
    val = str(given) if given else folders[held][0] if held else None
    return train, val, "test" if held == "test" else "validation"


def _labelled(folders: list[str]) -> bool:
    return any(entry.is_dir() and _has_images(entry.path) for path in folders for entry in entries(path))


def _refuse_both_readings(root: Path, splits: list[str], classes: list[str]) -> None:
    names = ", ".join(f"{os.path.basename(path)}/" for path in splits)
    others = ", ".join(f"{os.path.basename(path)}/" for path in classes[:5]) + " ..." * (len(classes) > 5)
    if not classes:
        raise ValueError(
            printable(
                f"{root} has {names} but no train/: put the training classes into {root}/train/, or give data.path and "
                "data.val_path"
            )
        )
    raise ValueError(
        printable(
            f"{root} can be read in two ways: {names} as split(s), which leaves {others} out; or {names} as class(es) "
            f"beside {others}. For splits, move {others} into {root}/train/ (or out of {root}); for classes, rename "
            f"{names}"
        )
    )


def _has_images(path: str) -> bool:
    """Whether an image lies in a folder or below it."""
    return any(is_image(name) for _, _, files in os.walk(path) for name in files)


def _source(train: str, val: str | None, word: str, account: Account) -> DataSource:
    if val is not None and os.path.realpath(val) == os.path.realpath(train):
        raise ValueError(f"data.val_path is the folder of the training images, {printable(train)}")
    if val is not None and _stray(val) and not _labelled([val]):
        raise DataNotFoundError(
            f"the {word} images lie directly in {printable(val)}; move each into the folder of its class, "
            f"{printable(val)}/<class>/<image>"
        )
    held: dict[str, int] = {}
    mine: dict[str, int] | None = {} if val is None else None
    val_found = {} if val is None else _scan(val, account, found=held)
    found = _scan(train, account, found=mine, apart=set(held.values()), leave=val)
    if not any(found.values()):
        raise DataNotFoundError(f"no images in {printable(train)}: expected {printable(train)}/<class>/<image> "
                                f"({' '.join(ENDINGS)})")  # fmt: skip
    class_names = natural_order(found)
    _check_classes(train, class_names)
    mean, std = IMAGENET
    training = _images(found, class_names, "training")
    return DataSource(
        train=training,
        val=None if val is None else _images(val_found, class_names, "validation"),
        class_names=[printable(name) for name in class_names],
        mean=mean,
        std=std,
        crop_pct=_CROP_PCT,
        held_out=word,
        account=account,
        same=np.array([mine[training.paths[index]] for index in range(len(training.paths))]) if mine else None,
    )


def _stray(folder: str) -> bool:
    """Whether an image lies in no folder of a class."""
    return any(entry.is_file() and is_image(entry.name) for entry in entries(folder))


def _check_classes(train: str, names: list[str]) -> None:
    """Refuse one class, and folders of splits below the folder of classes: one folder too many on the path."""
    if len(names) > 1 and not all(map(split_of, names)):
        return
    found = [entry for entry in entries(os.path.join(train, names[0])) if entry.is_dir() and not is_hidden(entry.name)]
    inner = natural_order(entry.name for entry in found if _has_images(entry.path))
    where = train if len(names) > 1 else os.path.join(train, names[0])
    advice = f"; its folders are {', '.join(inner[:5])}: is one folder missing on data.path, {where}?" if inner else ""
    raise ValueError(
        printable(
            f"the only class of {train} is {names[0]!r}: expected a folder for each of 2 or more classes{advice}"
            if len(names) == 1
            else f"the classes of {train} would be {', '.join(names)}, the names of splits: give it as data.path"
        )
    )


def _images(found: dict[str, list[str]], class_names: list[str], split: str) -> FileImages:
    order = natural_order(found)
    names = [name for name in order for _ in found[name]]
    paths = [path for name in order for path in found[name]]
    return FileImages(PathTable(paths), class_numbers(names, class_names, split=split))


def _scan(
    root: str,
    account: Account,
    *,
    found: dict[str, int] | None = None,
    apart: set[int] | None = None,
    leave: str | None = None,
) -> dict[str, list[str]]:
    """Class name to the paths of its images, in natural order; ``leave``: a folder that is no class."""
    classes: dict[str, list[str]] = {}
    for entry in entries(root):
        if is_hidden(entry.name):
            account.leave_out("hidden", printable(entry.path))
        elif not entry.is_dir():
            account.leave_out(left_because(entry, "in no folder of a class"), printable(entry.path))
        elif leave is None or not os.path.samefile(entry.path, leave):
            images = natural_order(images_below(entry.path, account, found=found, apart=apart or None))
            if not images and split_of(entry.name):
                account.leave_out(_EMPTY_SPLIT, printable(entry.path))
            elif images or not any(not is_hidden(inner.name) for inner in entries(entry.path)):
                name = normalize("NFC", entry.name)  # systems spell one name with different characters
                if name in classes:
                    raise ValueError(f"{printable(root)} has two folders for the class {printable(name)!r}; join them")
                classes[name] = images
            else:
                account.leave_out("folders without an image of their own", printable(entry.path))
    return classes
