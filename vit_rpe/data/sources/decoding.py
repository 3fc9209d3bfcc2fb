"""Text files to text: corpora and lists of classes alike.

UTF-8, with or without its mark; UTF-16 and UTF-32 where the mark at the start names them. Other bytes are refused,
never guessed at.
"""

from __future__ import annotations

import codecs
from pathlib import Path

from vit_rpe.data.errors import DataNotFoundError, printable

__all__ = ["decode", "read_lines", "read_text"]

_MARKS = (  # the longer first: the mark of UTF-16 begins that of UTF-32
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(content: bytes, where: str) -> str:
    """``content`` as text, line ends as one newline. Raises ``DataNotFoundError`` for what is not text."""
    name = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(name)
    except UnicodeDecodeError as error:
        raise DataNotFoundError(f"{where} is no {name.upper()} text: {error.reason} at byte {error.start}; "
                                "save it as UTF-8") from error  # fmt: skip
    if "\0" in text:
        raise DataNotFoundError(f"{where} is no text: it holds bytes of 0; UTF-16 needs its mark, or save it as UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: Path) -> str:
    """The text of a file; raises as ``decode``."""
    return decode(path.read_bytes(), printable(path))


def read_lines(path: Path) -> list[str]:
    """The lines of a file without white space at their ends, and without empty ones at the end of the file."""
    return [line.strip() for line in read_text(path).rstrip().split("\n")]
