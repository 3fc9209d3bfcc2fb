"""The errors of the data side; each message is one line that says what was found and what is expected."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["BadImageError", "DataNotFoundError", "bad_image", "printable"]


class DataNotFoundError(ValueError):
    """Data is missing or incomplete: the message says where it was looked for and how to get it."""


class BadImageError(ValueError):
    """One image cannot be read: ``name`` is its path (or its place in an archive), ``reason`` says why."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"cannot read image {name}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[BadImageError], tuple[str, str]]:
        return BadImageError, (self.name, self.reason)


def bad_image(name: str, error: Exception) -> BadImageError:
    """The one-line error for what a decoder raised on image ``name``."""
    return BadImageError(name, " ".join(str(error).split()) or type(error).__name__)


def printable(path: str | Path) -> str:
    """A path as text that every file and figure can hold: bytes that are no UTF-8 become ``\\xNN``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
