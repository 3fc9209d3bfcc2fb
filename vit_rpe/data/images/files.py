"""What counts as an image file, for folders, shards, prediction and pictures alike.

A file counts by the ending of its name; what is in it is seen when it is read. What is hidden (``.x``, and so the
companions ``._x.png`` of another system) or made by machines (``__MACOSX``) does not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from vit_rpe.data.account import Account
from vit_rpe.data.classes import natural_order
from vit_rpe.data.errors import printable

__all__ = ["ENDINGS", "entries", "identity", "image_files", "images_below", "is_hidden", "is_image", "left_because"]

ENDINGS = (".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm",
           ".tif", ".tiff", ".webp")  # fmt: skip


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name does not count."""
    return name.startswith(".") or name in ("__MACOSX", "__pycache__")


def is_image(name: str) -> bool:
    """Whether a file of this name counts."""
    return not is_hidden(name) and os.path.splitext(name)[1].lower() in ENDINGS


def entries(folder: str) -> list[os.DirEntry[str]]:
    """What a folder holds."""
    with os.scandir(folder) as found:
        return list(found)


def left_because(entry: os.DirEntry[str], reason: str) -> str:
    """``reason``, or that the entry is a link to nothing."""
    return "links to nothing" if entry.is_symlink() and not os.path.exists(entry.path) else reason


def identity(path: str) -> int:
    """What a file is, whatever it is called: equal for links, hard links and other spellings of one file."""
    real = os.path.realpath(path)
    try:
        return _numbered(os.stat(os.path.dirname(real)).st_dev, os.stat(real).st_ino, real)
    except OSError:  # a link to nothing
        return hash(real)


def _numbered(device: int, number: int, real: str) -> int:
    return hash((device, number) if number else real)  # not every file system numbers its files


def images_below(folder: str, account: Account, *, found: dict[str, int] | None = None, apart: set[int] | None = None,
                 above: frozenset[str] = frozenset()) -> list[str]:  # fmt: skip
    """Paths of the images in a folder and the folders below it, unsorted; links are followed, but not in a circle.

    Args:
        account: counts what is left out.
        found: collects what the images are: path to ``identity``.
        apart: images to leave out, by their ``identity``.
    """
    here = os.path.realpath(folder)
    if here in above:
        return []
    images: list[str] = []
    device = os.stat(here).st_dev
    for entry in entries(folder):
        if is_hidden(entry.name):
            account.leave_out("hidden", printable(entry.path))
        elif entry.is_dir():
            images += images_below(entry.path, account, found=found, apart=apart, above=above | {here})
        elif not is_image(entry.name):
            account.leave_out(left_because(entry, "no images by their names"), printable(entry.path))
        else:
            if found is not None or apart is not None:
                own = (  # one question to the file system a folder, not one a file
                    identity(entry.path)
                    if entry.is_symlink()
                    else _numbered(device, entry.inode(), f"{here}{os.sep}{entry.name}")
                )
                if apart is not None and own in apart:
                    account.leave_out("training files that are validation files", printable(entry.path))
                    continue
                if found is not None:
                    found[entry.path] = own
            images.append(entry.path)
    return images


def image_files(words: Iterable[str | Path], account: Account) -> list[Path]:
    """The files named, folders replaced by the images in them, in natural order.

    Raises:
        ValueError: a path does not exist, or a folder holds no image.
    """
    files: list[Path] = []
    for path in map(Path, words):
        if not path.exists():
            raise ValueError(f"no such image: {printable(path)}")
        found = [path] if not path.is_dir() else list(map(Path, natural_order(images_below(str(path), account))))
        if not found:
            raise ValueError(f"no images in {printable(path)} (files that end in {' '.join(ENDINGS)})")
        files += found
    account.taken["images"] = len(files)
    return files
