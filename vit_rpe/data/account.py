"""The account of a data set: what was met, taken and left out, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vit_rpe.data.errors import BadImageError

__all__ = ["Account", "BadImages"]


@dataclass
class Account:
    """Counts, filled while a source is read and split.

    ``taken``: samples (or files of text) by split; ``left_out``: how many by reason, and the first of them by name;
    ``copies``: what is on both sides of the split, or in two classes, under other names, in words.
    """

    taken: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    copies: str = ""

    def say_copies(self, count: int, name: str, other: str, *, side: str, what: str) -> None:
        """Note what is trained on and held out too, byte for byte: nothing is moved for it. ``name`` and ``other`` are
        the first pair, ``side`` is what is held out of ``what``."""
        if count:
            self._say(f"{count:,} training {what} also among the {side} {what} ({name} = {other})")

    def say_two_classes(self, count: int, name: str, other: str, *, side: str, what: str) -> None:
        """Note what is in two classes of one side byte for byte; ``name`` and ``other`` are the first pair."""
        if count:
            self._say(f"{count:,} {side} {what} also in another class ({name} = {other})")

    def _say(self, words: str) -> None:
        self.copies += "; " * bool(self.copies) + words

    def leave_out(self, reason: str, name: str, count: int = 1) -> None:
        """Count what is not taken; ``name`` is that of the first."""
        if count:
            self.left_out[reason] = self.left_out.get(reason, 0) + count
            self.first.setdefault(reason, name)

    def left(self) -> str:
        """What was left out, in words."""
        total = sum(self.left_out.values())
        parts = [f"{count:,} {reason} ({self.first[reason]}{', ...' * (count > 1)})" for reason, count in
                 self.left_out.items()]  # fmt: skip
        return f"left out {total:,}: {'; '.join(parts)}" if total else "left out nothing"

    def words(self) -> str:
        """One line."""
        taken, left = sum(self.taken.values()), sum(self.left_out.values())
        sides = " and ".join(f"{count:,} {side}" for side, count in self.taken.items())
        return f"met {taken + left:,}, took {taken:,} ({sides}), {self.left()}{'; ' * bool(self.copies)}{self.copies}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "met": sum(self.taken.values()) + sum(self.left_out.values()),
            "taken": dict(self.taken),
            "copies": self.copies,
            "left_out": {
                reason: {"count": count, "first": self.first[reason]} for reason, count in self.left_out.items()
            },
        }


class BadImages:
    """Unreadable images met by this process: name to reason.

    ``cap`` None: the first one raises ``BadImageError``. A number: more than ``cap`` of them raise
    ``ValueError``. It lives in the main process, where an error keeps its one line; loader processes only
    report.
    """

    def __init__(self, cap: int | None):
        self.cap = cap
        self.reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.reasons)

    def add(self, met: Iterable[tuple[str, str]]) -> None:
        """Count each name once."""
        for name, reason in met:
            if self.cap is None:
                raise BadImageError(name, reason)
            self.reasons.setdefault(name, reason)
        if self.cap is not None and len(self.reasons) > self.cap:
            raise ValueError(f"data.max_bad_images={self.cap} is exceeded: {self.summary()}")

    def summary(self) -> str:
        """One line for the end of a run; empty when every image could be read."""
        if not self.reasons:
            return ""
        name, reason = next(iter(self.reasons.items()))
        return f"{len(self.reasons)} image(s) could not be read; the first: {name}: {reason}"
