"""Many paths in little memory."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

__all__ = ["PathTable"]


class PathTable:
    """Paths as one block of bytes: a million string objects would be copied into every forked loader process,
    page by page, as their reference counts change."""

    def __init__(self, paths: Iterable[str]):
        encoded = [os.fsencode(path) for path in paths]
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([len(path) for path in encoded], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        start = self._ends[index - 1] if index else 0
        return os.fsdecode(self._bytes[start : self._ends[index]].tobytes())
