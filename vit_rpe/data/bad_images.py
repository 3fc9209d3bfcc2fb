"""What could not be read so far, and when it is too much."""

from __future__ import annotations

from collections.abc import Iterable

from vit_rpe.data.errors import BadImageError

__all__ = ["BadImages"]


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
