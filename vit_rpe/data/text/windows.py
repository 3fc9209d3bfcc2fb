"""Stretches of one long text as samples: a key in, tokens and labels out.

T tokens of the text, n samples, B batch, L tokens of a sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vit_rpe.data.batch import Batch
from vit_rpe.data.draws import key_number

__all__ = ["BLOCK", "TextWindows", "evaluation_windows", "training_windows"]

BLOCK = 8
"""Evaluation text is cut into blocks of so many native lengths. Windows of any length that divides a block
then score exactly the same characters, so that losses at different lengths compare."""


class TextWindows(Dataset):
    """Sample i starts at a token drawn from ``first[i]`` ... ``last[i]``, anew every epoch.

    Args:
        text: token numbers, int16 (T,).
        first, last: int64 (n,), the same for a fixed start.
        length: L.
        classes: int64 (n,), the label of each sample; None: the labels are the next tokens, (L,) a sample.
        seed: of the draws.
    """

    def __init__(
        self,
        text: np.ndarray,
        first: np.ndarray,
        last: np.ndarray,
        *,
        length: int,
        classes: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        self.text = text
        self.first = first
        self.last = last
        self.length = length
        self.classes = classes
        self.seed = seed

    def __len__(self) -> int:
        return len(self.first)

    @property
    def labels(self) -> np.ndarray:
        """All labels that occur, whatever their order: for checks against the number of outputs."""
        return np.unique(self.text) if self.classes is None else self.classes

    def __getitem__(self, key: int | tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Tokens int64 (L,) and labels int64 (L,) or ()."""
        batch = self.__getitems__([key])
        return batch.inputs[0], batch.labels[0]

    def __getitems__(self, keys: Sequence[int | tuple[int, int]]) -> Batch:
        """A batch: tokens int64 (B, L), labels int64 (B, L) or (B,)."""
        places = [key if isinstance(key, tuple) else (0, int(key)) for key in keys]
        starts = np.array([self._start(epoch, index) for epoch, index in places])
        more = 1 if self.classes is None else 0
        found = self.text[starts[:, None] + np.arange(self.length + more)].astype(np.int64)
        tokens = torch.from_numpy(found)
        if self.classes is None:
            return Batch(tokens[:, :-1], tokens[:, 1:])
        return Batch(tokens, torch.from_numpy(self.classes[[index for _, index in places]]))

    def _start(self, epoch: int, index: int) -> int:
        low, high = int(self.first[index]), int(self.last[index])
        return low if low == high else low + key_number("window", self.seed, epoch, index) % (high - low + 1)


def training_windows(text: np.ndarray, length: int, *, count: int | None, seed: int) -> TextWindows:
    """Windows spread over a whole text, each somewhere in its own share of it.

    Args:
        text: (T,), at least ``length`` + 1 tokens.
        count: windows an epoch; None: as many as cover the text once.

    Raises:
        ValueError: the text is too short.
    """
    places = len(text) - length
    if places < 1:
        raise ValueError(f"the training text has {len(text)} characters, data.length={length} needs {length + 1}")
    count = max(1, places // length) if count is None else count
    edges = np.arange(count + 1) * places // count
    return TextWindows(text, edges[:-1], np.maximum(edges[1:] - 1, edges[:-1]), length=length, seed=seed)


def evaluation_windows(text: np.ndarray, length: int, *, native: int, characters: int | None) -> TextWindows:
    """Fixed windows of ``length`` that score the same characters for every length that divides ``BLOCK *
    native``.

    Args:
        text: (T,).
        native: the length the model was trained at.
        characters: about how many to score, in blocks spread evenly over the text; None for all.

    Raises:
        ValueError: the text holds no whole block, or ``length`` does not divide a block.
    """
    block = BLOCK * native
    available = (len(text) - 1) // block
    if available < 1:
        raise ValueError(f"the validation text has {len(text)} characters, data.length={native} needs {block + 1}")
    if length < 1 or block % length != 0:
        raise ValueError(f"length={length} must divide {block}, {BLOCK} times the native {native}")
    blocks = available if characters is None else min(available, max(1, characters // block))
    starts = np.arange(blocks) * available // blocks * block
    starts = (starts[:, None] + np.arange(0, block, length)).reshape(-1)
    return TextWindows(text, starts, starts, length=length)
