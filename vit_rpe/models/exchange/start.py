"""Encodings added to weights that were trained without them: they add nothing at first, or say that they cannot."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from vit_rpe.encodings import PositionEncoding


def start_at_zero(encodings: Iterable[PositionEncoding]) -> None:
    """Make every encoding add nothing; warn once for each kind that cannot, whatever its parameters are."""
    changing = set()
    for encoding in encodings:
        try:
            encoding.zero_()
        except ValueError:
            changing.add(encoding.name)
    for name in sorted(changing):
        warnings.warn(
            f"{name!r} changes the attention from the start: the weights were trained without it, so outputs differ "
            "until the model is fine-tuned",
            stacklevel=4,
        )
