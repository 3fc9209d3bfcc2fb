"""What a model needs to know of text: its characters and its length; small enough to travel in a checkpoint.

V is the number of characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vit_rpe.data.treatment import Treatment

__all__ = ["UNKNOWN", "TextTreatment", "common_characters", "text_treatment"]

UNKNOWN = "\ufffd"
"""The character that stands for all that are not in the vocabulary; its number is 0."""


@dataclass(frozen=True)
class TextTreatment:
    """``characters``: the vocabulary, by token number, ``UNKNOWN`` first; ``length``: tokens of a sample;
    ``task``: ``"language"`` (the label of a token is the next one) or ``"classes"`` (one label a sample).
    """

    kind: ClassVar[str] = "text"
    size_name: ClassVar[str] = "length"
    shows_pictures: ClassVar[bool] = False

    characters: tuple[str, ...]
    length: int
    task: str

    @property
    def unit(self) -> str:
        """What is counted, one label each."""
        return "characters" if self.task == "language" else "passages"

    @property
    def size(self) -> tuple[int]:
        """(tokens of a sample,)."""
        return (self.length,)

    def model_args(self, num_classes: int) -> dict[str, Any]:
        """The arguments of the model that the data decide."""
        language = self.task == "language"
        return {
            "vocab_size": len(self.characters),
            "length": self.length,
            "num_classes": num_classes,
            "head": "lm" if language else "classification",
            "causal": language,
        }

    def resized(self, img_size: tuple[int, int]) -> TextTreatment:
        """Text has no image size: raises ``ValueError``."""
        raise ValueError(f"img_size={img_size}, but the model takes text")

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings."""
        return {"kind": "text", "characters": list(self.characters), "length": self.length, "task": self.task}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TextTreatment:
        """Inverse of ``to_dict``."""
        return cls(tuple(values["characters"]), int(values["length"]), str(values["task"]))

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


def text_treatment(treatment: Treatment, what: str) -> TextTreatment:
    """``treatment`` itself. Raises ``ValueError`` where it is not of text; ``what`` names whose it is."""
    if not isinstance(treatment, TextTreatment):
        raise ValueError(f"{what} takes {treatment.kind}, not text")
    return treatment
