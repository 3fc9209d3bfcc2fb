"""What could not be read so far, and when it is too much."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["BadImages"]


class BadImages:
    """Unreadable images met by this process: name to reason. More than ``cap`` raise ``ValueError``."""

    def __init__(self, cap: int):
        self.cap = cap
        self.reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.reasons)

    def add(self, met: Iterable[tuple[str, str]]) -> None:
        """Count each name once."""
        for name, reason in met:
            self.reasons.setdefault(name, reason)
        if len(self.reasons) > self.cap:
            name, reason = next(iter(self.reasons.items()))
            raise ValueError(
                f"{len(self.reasons)} images cannot be read, data.max_bad_images={self.cap}; "
                f"the first: {name}: {reason}"
            )

    def summary(self) -> str:
        """One line for the end of a run; empty when every image could be read."""
        if not self.reasons:
            return ""
        name, reason = next(iter(self.reasons.items()))
        return f"{len(self.reasons)} image(s) could not be read and were skipped; the first: {name}: {reason}"
