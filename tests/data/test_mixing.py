"""Mixup and cutmix: timm's, with draws that depend on (seed, epoch, batch, rank) alone."""

import numpy as np
import pytest
import torch

from vit_rpe.data import DataConfig, batch_mixer


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Image k is constant k + 1, label k: the mixture can be read off."""
    images = torch.arange(1.0, 7.0)[:, None, None, None].expand(6, 3, 10, 14).clone()
    return images, torch.arange(6)


def mix(config: DataConfig, *, seed=0, epoch=0, number=0, rank=0, smoothing=0.0):
    mixer = batch_mixer(config, num_classes=6, label_smoothing=smoothing)
    return mixer(*batch(), seed=seed, epoch=epoch, batch=number, rank=rank)


def test_off_by_default():
    assert batch_mixer(DataConfig(), num_classes=6, label_smoothing=0.1) is None


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_targets_follow_the_pixels(mixup, cutmix):
    for number in range(8):
        images, targets = mix(DataConfig(mixup=mixup, cutmix=cutmix), number=number)
        torch.testing.assert_close(targets.sum(1), torch.ones(6))
        expected = targets @ torch.arange(1.0, 7.0)
        torch.testing.assert_close(images.mean((1, 2, 3)), expected, rtol=1e-5, atol=1e-5)


def test_label_smoothing_is_part_of_the_targets():
    _, targets = mix(DataConfig(mixup=0.8), smoothing=0.3)
    torch.testing.assert_close(targets.min(1).values, torch.full((6,), 0.05))


def test_each_batch_draws_its_own_and_runs_repeat():
    keys = [(seed, epoch, number, rank) for seed in (0, 1) for epoch in (0, 1) for number in (0, 1) for rank in (0, 1)]
    mixtures = [mix(DataConfig(mixup=0.8), seed=s, epoch=e, number=n, rank=r)[1][0].tolist() for s, e, n, r in keys]
    again = [mix(DataConfig(mixup=0.8), seed=s, epoch=e, number=n, rank=r)[1][0].tolist() for s, e, n, r in keys]
    assert mixtures == again
    assert len({tuple(mixture) for mixture in mixtures}) == len(keys)


def test_the_global_random_state_is_left_alone():
    np.random.seed(3)  # noqa: NPY002 - the state under test
    expected = np.random.rand(4)  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    mix(DataConfig(mixup=0.8, cutmix=1.0))
    np.testing.assert_array_equal(np.random.rand(4), expected)  # noqa: NPY002


def test_odd_batches_are_refused():
    with pytest.raises(ValueError, match=r"data\.batch_size=5, expected even"):
        DataConfig(batch_size=5, mixup=0.2)
    mixer = batch_mixer(DataConfig(mixup=0.2), num_classes=6, label_smoothing=0.0)
    images, labels = batch()
    with pytest.raises(ValueError, match="a batch of 5 images cannot be mixed in pairs"):
        mixer(images[:5], labels[:5], seed=0, epoch=0, batch=0)
