"""Memory that windows of queries use one after the other.

A block of a megabyte goes back to the system when it is freed, and getting it again costs a page fault for every 4 kB:
a quarter of the time of attention over 128 x 128 tokens. Only memory is kept, never what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod

from torch import Tensor


class Scratch:
    """Memory for one result at a time."""

    def __init__(self) -> None:
        self._memory: Tensor | None = None
        self._free = False

    def clear(self) -> None:
        """The last result is no longer needed."""
        self._free = True

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor | None:
        """Memory of this shape, dtype and device; None while a result is in use."""
        if not self._free:
            return None
        self._free = False
        size = prod(shape)
        kept = self._memory
        if kept is None or kept.numel() < size or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._memory = like.new_empty(size)
        return kept[:size].view(tuple(shape))


_scratch: ContextVar[Scratch | None] = ContextVar("scratch", default=None)


def current_scratch() -> Scratch | None:
    """The memory that a large result may be written to."""
    return _scratch.get()


@contextmanager
def reusing_memory() -> Iterator[Scratch]:
    """Within it large results share one block of memory: each is valid until ``clear`` and the next."""
    scratch = Scratch()
    token = _scratch.set(scratch)
    try:
        yield scratch
    finally:
        _scratch.reset(token)
