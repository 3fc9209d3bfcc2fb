"""Sizes, shifts, lengths and devices that mean nothing are refused before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from vit_rpe.evaluation.length_eval import bits_by_length
from vit_rpe.evaluation.resolution_eval import accuracy_by_shift, accuracy_by_size


@pytest.mark.parametrize("value", [-1, 0, 1.5, True, "8", float("nan"), float("inf"), None])
def test_wrong_numbers(value: Any) -> None:
    with pytest.raises(ValueError, match="each side of a size must be an integer of at least 1"):
        accuracy_by_size("nowhere", [value])
    with pytest.raises(ValueError, match="each side of a size must be an integer of at least 1"):
        accuracy_by_size("nowhere", [(8, value)])
    with pytest.raises(ValueError, match="a length must be an integer of at least 1"):
        bits_by_length("nowhere", [value])
    if type(value) is not int:
        with pytest.raises(ValueError, match="a shift in pixels must be an integer"):
            accuracy_by_shift("nowhere", [value])


@pytest.mark.parametrize("device", ["gpu", "cuda:93"])
def test_wrong_devices(device: str) -> None:
    for ask in (accuracy_by_size, accuracy_by_shift, bits_by_length):
        with pytest.raises(ValueError, match="device"):
            ask("nowhere", [8], device=device)  # type: ignore[operator]
