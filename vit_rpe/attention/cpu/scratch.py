"""Memory that windows of queries use one after the other.

A block of a megabyte goes back to the system when it is freed, and getting it again costs a page fault for every 4 kB:
a quarter of the time of attention over 128 x 128 tokens. Only memory is kept, never what is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor


class Scratch:
    """Memory that is used again and again for one result at a time; a result is gone when the next is asked for."""

    def __init__(self) -> None:
        self._memory: Tensor | None = None

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Memory of this shape, in the dtype and on the device of ``like``; what it holds is not set."""
        size = prod(shape)
        kept = self._memory
        if kept is None or kept.numel() < size or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._memory = like.new_empty(size)
        return kept[:size].view(tuple(shape))
