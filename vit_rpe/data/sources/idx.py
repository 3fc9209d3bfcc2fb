"""The IDX format of the MNIST family: a big-endian header (type, number of axes, their sizes), then the
bytes.

Described at the end of Y. LeCun's MNIST page; here only unsigned bytes, plain or gzip.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from vit_rpe.data.errors import DataNotFoundError

__all__ = ["read_idx"]

_UNSIGNED_BYTE = 8


def read_idx(path: Path, *, axes: int) -> np.ndarray:
    """Array of uint8 with ``axes`` axes. Raises ``DataNotFoundError`` for a truncated or foreign file."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataNotFoundError(f"{path} is damaged or incomplete: {error}; get it again") from error
    header = 4 + 4 * axes
    if raw[:4] != bytes([0, 0, _UNSIGNED_BYTE, axes]) or len(raw) < header:
        raise DataNotFoundError(f"{path} is no IDX file of bytes with {axes} axes; get it again")
    shape = [int(size) for size in np.frombuffer(raw, dtype=">u4", count=axes, offset=4)]
    expected = header + int(np.prod(shape))
    if len(raw) != expected:
        raise DataNotFoundError(f"{path} is incomplete: {len(raw)} bytes, expected {expected}; get it again")
    return np.frombuffer(raw, dtype=np.uint8, offset=header).reshape(shape)
