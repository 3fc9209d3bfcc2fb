"""The data options of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vit_rpe.data.options import DataOptions, expect

__all__ = ["TextData", "text_data"]


@dataclass(frozen=True)
class TextData(DataOptions):
    """Text: which, how long a sample is, and which characters a model knows.

    Args:
        length: characters of a sample of text
        characters: size of the vocabulary of text: the most frequent characters, and one for all others
        windows: training samples of text in an epoch; null takes as many as cover the text once
        val_characters: about how many characters of held-out text to score, spread evenly; null takes all
    """

    kind: ClassVar[str] = "text"

    name: str = "text"
    length: int = 128
    characters: int = 128
    windows: int | None = None
    val_characters: int | None = 131_072

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, least in (("length", 1), ("characters", 2), ("windows", 1), ("val_characters", 1)):
            given = getattr(self, key)
            expect(key, given, given is None or given >= least, f"at least {least}")


def text_data(config: DataOptions) -> TextData:
    """``config`` itself. Raises ``ValueError`` where it is not of text."""
    if not isinstance(config, TextData):
        raise ValueError(f"data.name={config.name} gives {config.kind}, not text")
    return config
