"""Random numbers as a pure function of what they are for.

A generator that is carried along repeats itself: a copy of it goes into every loader process, and a new epoch
or a resumed run starts it again. Here every draw is keyed instead, by (seed, epoch, sample) or (seed, epoch,
batch); nothing depends on the number of processes, on how they start, or on what was drawn before.
"""

from __future__ import annotations

import random
from hashlib import blake2b
from typing import Any

import numpy as np

__all__ = ["KeyedRandom", "key_number"]


def key_number(*parts: int | str) -> int:
    """A 128-bit number from ``parts``, equal on every machine."""
    text = ",".join(map(str, parts)).encode()
    return int.from_bytes(blake2b(text, digest_size=16).digest(), "little")


class KeyedRandom:
    """The pair of generators an albumentations pipeline draws from, moved to the place of a key for every
    sample.

    Moving costs a few microseconds; making new generators, or ``Compose.set_random_seed``, several times that
    (and the latter gives every transform of a pipeline the same stream, so that their draws are not
    independent).
    """

    def __init__(self) -> None:
        self.numpy = np.random.Generator(np.random.PCG64(0))
        self.python = random.Random(0)
        self._state: Any = self.numpy.bit_generator.state

    def move_to(self, *parts: int | str) -> None:
        """Both generators continue from the place that ``parts`` name."""
        number = key_number(*parts)
        self._state["state"]["state"] = number
        self._state["has_uint32"] = 0
        self.numpy.bit_generator.state = self._state
        self.python.seed(number >> 64)
