"""One check for options that take a name."""

from __future__ import annotations

from collections.abc import Iterable

from ..suggest import unknown_name

__all__ = ["check_choice"]


def check_choice(what: str, given: object, known: Iterable[str]) -> None:
    """Raise ``ValueError`` with the closest match unless ``given`` is one of ``known``; ``what`` names the
    option.
    """
    names = list(known)
    if given not in names:
        raise unknown_name(what, given, names)
