"""One class map per run: made from the training split, used by every split and saved with the model."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["check_label", "class_numbers", "natural_order", "unique"]

_NUMBER = re.compile(r"(\d+)")


def natural_order(names: Iterable[str]) -> list[str]:
    """``names`` sorted with the numbers in them compared as numbers: 0, 1, 2, 10; a2, a10."""

    def key(name: str) -> tuple[list[tuple[int, int, str]], str]:
        parts = [part for part in _NUMBER.split(name) if part]
        return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts], name

    return sorted(names, key=key)


def check_label(value: object, where: str) -> None:
    """Refuse what says "no label" or is no label: None, NaN and other fractions, numbers below 0, lists, empty text.

    Raises:
        ValueError: with the value and where it was found.
    """
    words = str(value).strip()
    if isinstance(value, (int, np.integer)) and value >= 0:
        return
    if isinstance(value, str) and words and not re.fullmatch(r"-\d+|nan|none|null", words.lower()):
        return
    raise ValueError(
        f"{where} holds the label {value!r}: a split without labels? Expected a number from 0 on or the name of a class"
    )


def unique(names: Sequence[str], where: str) -> list[str]:
    """``names`` as a list. Raises ``ValueError`` for one that is empty or there twice."""
    for number, name in enumerate(names):
        if not name.strip() or name in names[:number]:
            what = f"{name!r} twice" if name.strip() else "an empty name"
            raise ValueError(f"{where} lists {what} (number {number}): expected one name for each class")
    return list(names)


def class_numbers(names: Sequence[str], class_names: Sequence[str], *, split: str) -> np.ndarray:
    """Class number of every image, (N,) int64, by the map ``class_names``.

    Args:
        names: the class name of every image, N of them.
        class_names: the map of the training split.
        split: which split this is, for messages.

    Raises:
        ValueError: a name is not in the map.

    Warns:
        UserWarning: a class of the map has no image here.
    """
    number = {name: position for position, name in enumerate(class_names)}
    extra = natural_order({name for name in names if name not in number})
    if extra:
        raise ValueError(
            f"{split} has {len(extra)} class(es) that training does not have: {', '.join(extra[:10])}; "
            f"training has {len(class_names)}: {', '.join(class_names[:10])}{' ...' if class_names[10:] else ''}"
        )
    present = set(names)
    missing = [name for name in class_names if name not in present]
    if missing:
        warnings.warn(
            f"{len(missing)} of {len(class_names)} classes have no {split} image: {', '.join(missing[:10])}",
            stacklevel=2,
        )
    return np.fromiter((number[name] for name in names), dtype=np.int64, count=len(names))
