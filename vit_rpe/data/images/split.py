"""Seeded subsets that keep the share of every class."""

from __future__ import annotations

import numpy as np

__all__ = ["stratified_split"]


def stratified_split(labels: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split 0..N-1 into (rest, chosen), sorted; chosen holds ``fraction`` of every class, rounded.

    A class with two samples or more keeps at least one on either side. ``labels`` (N,) int64. The split
    depends on the labels, the fraction and the seed alone.
    """
    generator = np.random.default_rng(seed)
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = round(len(members) * fraction)
        if len(members) > 1:
            count = min(max(count, 1), len(members) - 1)
        chosen[generator.permutation(members)[:count]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
