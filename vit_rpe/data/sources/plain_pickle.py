"""Pickles that hold numbers, strings and NumPy arrays, read without ever running what else a pickle could
name.
"""

from __future__ import annotations

import pickle
from typing import IO, Any

import numpy as np

__all__ = ["read_plain_pickle"]

_RECONSTRUCT = np.zeros(0).__reduce__()[0]
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _encode
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no data file needs")
        return _ALLOWED[module, name]


def _encode(text: str, encoding: str) -> bytes:
    return text.encode(encoding)


def read_plain_pickle(file: IO[bytes]) -> dict[str, Any]:
    """The dictionary in ``file``, written by Python 2 or 3; keys become strings.

    Raises ``pickle.UnpicklingError``, ``EOFError`` or ``ValueError`` for anything else.
    """
    content = _PlainUnpickler(file, encoding="latin1").load()
    if not isinstance(content, dict):
        raise pickle.UnpicklingError(f"it holds a {type(content).__name__}, expected a dictionary")
    return {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
