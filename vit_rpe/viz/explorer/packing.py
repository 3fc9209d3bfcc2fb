"""Arrays packed into text for a page: one binary block, compressed, in base 85.

An array is added once however often it comes (index matrices repeat in every layer), and is described by where it
lies. ``reader.js`` is the other half.
"""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np

# Printable ASCII without quotes, backslash and what HTML or JSON would have to escape.
ALPHABET = "".join(chr(code) for code in range(33, 127) if chr(code) not in "\"&'<>\\`~-")
assert len(ALPHABET) == 85

Description = dict[str, Any]
"""``{"at": byte, "type": "i1|u1|i2|u2|f4", "shape": [...]}`` and, for rounded values, ``"scale"``."""


class Packer:
    """Collects arrays; ``text()`` gives the block."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.length = 0
        self.known: dict[tuple[str, bytes], int] = {}

    def add(self, array: np.ndarray) -> Description:
        """Put an array of integers of one or two bytes, or of float32, into the block."""
        kind = array.dtype.kind + str(array.dtype.itemsize)
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        at = self.known.get((kind, data))
        if at is None:
            at = self.known[kind, data] = self.length
            self.parts.append(data + bytes(-len(data) % 4))
            self.length += len(self.parts[-1])
        return {"at": at, "type": kind, "shape": list(array.shape)}

    def add_rounded(self, values: np.ndarray) -> Description:
        """Values as 16-bit integers times one scale; -32768 stands for minus infinity, 32767 for NaN."""
        finite = np.isfinite(values)
        largest = float(np.abs(values[finite]).max()) if finite.any() else 0.0
        scale = largest / 32766 if largest > 0 else 1.0
        whole = np.rint(np.where(finite, values, 0.0) / scale).astype(np.int16)
        whole[np.isneginf(values)] = -32768
        whole[np.isnan(values)] = 32767
        return {**self.add(whole), "scale": scale}

    def text(self) -> tuple[str, int]:
        """The block, compressed and in base 85, and its length in bytes before base 85."""
        packed = gzip.compress(b"".join(self.parts), 6, mtime=0)
        return base85(packed), len(packed)


def base85(data: bytes) -> str:
    """Four bytes to five characters of ``ALPHABET``, most significant first; the end is filled with zero bytes."""
    words = np.frombuffer(data + bytes(-len(data) % 4), dtype=">u4").astype(np.int64)
    digits = np.empty((len(words), 5), dtype=np.int64)
    for place in range(4, -1, -1):
        words, digits[:, place] = np.divmod(words, 85)
    letters = np.frombuffer(ALPHABET.encode("ascii"), dtype=np.uint8)
    return letters[digits].tobytes().decode("ascii")
