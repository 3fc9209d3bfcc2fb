"""One wording for "there is no such name", with the closest one that exists."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(given: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where no known name is close."""
    matches = get_close_matches(given, list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def unknown_name(what: str, given: object, known: Iterable[str]) -> ValueError:
    """The error for a value of ``what`` that is not one of the ``known`` names."""
    known = list(known)
    hint = closest(str(given), known)
    return ValueError(f"unknown {what} {given!r}{hint}; known: {', '.join(map(str, known))}")
