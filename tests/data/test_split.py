"""Stratified, seeded, and independent of everything else."""

import numpy as np
import pytest

from vit_rpe.data import DataConfig, build_data
from vit_rpe.data.images.split import stratified_split

LABELS = np.repeat(np.arange(5), [40, 30, 11, 2, 1])


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.9])
def test_every_class_keeps_its_share(fraction):
    rest, chosen = stratified_split(LABELS, fraction, 3)
    assert sorted([*rest, *chosen]) == list(range(len(LABELS)))
    counts = np.bincount(LABELS[chosen], minlength=5)
    assert list(counts[:3]) == [round(count * fraction) for count in (40, 30, 11)]
    assert counts[3] == 1
    assert np.bincount(LABELS[rest], minlength=5).min() >= (1 if fraction < 0.5 else 0)


def test_the_seed_decides():
    def chosen(seed):
        return tuple(stratified_split(LABELS, 0.3, seed)[1])

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)


def test_digits_are_split_80_to_20_whatever_the_training_seed():
    bundles = [build_data(DataConfig(), img_size=(8, 8), in_chans=1, seed=seed) for seed in (0, 1)]
    assert (len(bundles[0].train), len(bundles[0].val)) == (1438, 359)
    assert bundles[0].split == (
        "digits: 1438 training and 359 test images (stratified split, 20% held out, split_seed=0)"
    )
    np.testing.assert_array_equal(bundles[0].val.labels, bundles[1].val.labels)
    other = build_data(DataConfig(split_seed=1), img_size=(8, 8), in_chans=1, seed=0)
    assert not (bundles[0].val[0][0].equal(other.val[0][0]) and bundles[0].val[1][0].equal(other.val[1][0]))


def test_fraction_takes_the_same_share_of_every_class():
    whole = build_data(DataConfig(), img_size=(8, 8), in_chans=1, seed=0)
    part = build_data(DataConfig(fraction=0.25), img_size=(8, 8), in_chans=1, seed=0)
    expected = np.bincount(whole.train.labels) * 0.25
    assert np.abs(np.bincount(part.train.labels) - expected).max() <= 0.5
    assert len(part.val) == len(whole.val)
