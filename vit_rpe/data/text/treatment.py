"""What a model needs to know of text: its characters and its length; small enough to travel in a checkpoint.

V is the number of characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_rpe.data.images.preprocessing import Preprocessing

__all__ = ["UNKNOWN", "TextTreatment", "common_characters", "read_treatment"]

UNKNOWN = "\ufffd"
"""The character that stands for all that are not in the vocabulary; its number is 0."""


@dataclass(frozen=True)
class TextTreatment:
    """``characters``: the vocabulary, by token number, ``UNKNOWN`` first; ``length``: tokens of a sample;
    ``task``: ``"language"`` (the label of a token is the next one) or ``"classes"`` (one label a sample).
    """

    characters: tuple[str, ...]
    length: int
    task: str

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings."""
        return {"kind": "text", "characters": list(self.characters), "length": self.length, "task": self.task}

    def encode(self, text: str) -> np.ndarray:
        """Characters to token numbers, int16 (len(text),)."""
        points = np.frombuffer(text.encode("utf-32-le", errors="replace"), dtype=np.uint32)
        known = np.array([ord(character) for character in self.characters[1:]], dtype=np.uint32)
        order = np.argsort(known)
        place = np.searchsorted(known, points, sorter=order).clip(max=len(known) - 1)
        found = order[place]
        return np.where(known[found] == points, found + 1, 0).astype(np.int16)

    def decode(self, tokens: Sequence[int] | Tensor) -> str:
        """Token numbers to characters."""
        return "".join(self.characters[int(token)] for token in tokens)

    def normalize(self, tokens: Tensor) -> Tensor:
        """Token numbers as the model takes them, int64."""
        return tokens.to(torch.int64)


def common_characters(text: str, count: int) -> tuple[str, ...]:
    """``UNKNOWN`` and the ``count`` - 1 most frequent characters of ``text``, in order of code point."""
    found = Counter(text)
    found.pop(UNKNOWN, None)
    frequent = sorted(found, key=lambda character: (-found[character], character))[: count - 1]
    return (UNKNOWN, *sorted(frequent))


def read_treatment(values: dict[str, Any]) -> Preprocessing | TextTreatment:
    """The inverse of ``to_dict`` of either kind.

    Raises:
        ValueError: unknown keys.
    """
    if values.get("kind") != "text":
        return Preprocessing.from_dict(values)
    return TextTreatment(tuple(values["characters"]), int(values["length"]), str(values["task"]))
