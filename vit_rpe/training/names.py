"""What to say about a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["unknown_name"]


def unknown_name(kind: str, given: str, known: Iterable[str], *, shown: int = 12) -> str:
    """A sentence about an unknown name, with the closest known one.

    Args:
        kind: what the name names, for example ``"config key"``.
        given: the name that was given.
        known: the names that exist.
        shown: if nothing is close, list the known names, at most this many.

    Returns:
        One line without a full stop.
    """
    names = sorted(known)
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    if not close:
        tail = given.rsplit(".", 1)[-1]
        close = [name for name in names if name.rsplit(".", 1)[-1] == tail][:1]
    if close:
        return f"unknown {kind} {given!r}; did you mean {close[0]!r}?"
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"unknown {kind} {given!r}; known: {', '.join(names[:shown])}{rest}"
