"""Order: every sample once, equal on every process, and startable anywhere."""

import pytest
import torch

from vit_rpe.data import DataConfig, build_data, eval_loader, train_loader
from vit_rpe.data.order import EvalOrder, TrainOrder


def keys(order):
    return [key for batch in order for key in batch]


@pytest.fixture(scope="module")
def digits():
    return build_data(DataConfig(augment="light"), img_size=(8, 10), in_chans=1, seed=4)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("first_batch", [0, 1, 5, 13])
def test_an_epoch_can_be_entered_anywhere(digits, num_workers, first_batch):
    config = DataConfig(batch_size=96, num_workers=num_workers, start_method="fork" if num_workers else None)
    loader = train_loader(digits, config, seed=7)
    loader.set_epoch(3)
    whole = list(loader)
    loader.set_position(3, first_batch)
    rest = list(loader)
    assert len(loader) == len(whole) == 14
    assert len(rest) == len(whole) - first_batch
    for (images, labels), (expected_images, expected_labels) in zip(rest, whole[first_batch:], strict=True):
        assert torch.equal(images, expected_images)
        assert torch.equal(labels, expected_labels)


def test_position_outside_the_epoch_is_refused(digits):
    with pytest.raises(ValueError, match=r"batch=15, expected 0\.\.14"):
        train_loader(digits, DataConfig(batch_size=96), seed=0).set_position(0, 15)
    loader = train_loader(digits, DataConfig(batch_size=96), seed=0)
    for epoch, batch, said in (
        (-1, 0, "epoch"),
        (1.5, 0, "epoch"),
        (True, 0, "epoch"),
        (0, 1.5, "batch"),
        (0, -1, "batch"),
    ):
        with pytest.raises(ValueError, match=f"{said} must be an integer of at least 0"):
            loader.set_position(epoch, batch)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_processes_share_each_step_without_overlap(world_size):
    orders = [
        TrainOrder(100, batch_size=12 // world_size, seed=2, rank=r, world_size=world_size) for r in range(world_size)
    ]
    for order in orders:
        order.epoch = 4
    steps = [sorted(key for part in step for key in part) for step in zip(*orders, strict=True)]
    alone = TrainOrder(100, batch_size=12, seed=2)
    alone.epoch = 4
    assert steps == [sorted(batch) for batch in alone]
    assert all(epoch == 4 for epoch, _ in keys(orders[0]))


def test_epochs_and_seeds_have_their_own_order():
    def order(seed, epoch):
        result = TrainOrder(50, batch_size=5, seed=seed)
        result.epoch = epoch
        return [index for _, index in keys(result)]

    assert sorted(order(1, 0)) == list(range(50))
    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1, 2)}) == 6


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [4, 4]), (False, [4, 4, 1])])
def test_the_last_batch(drop_last, sizes):
    for rank in (0, 1):
        order = TrainOrder(19, batch_size=4, seed=0, rank=rank, world_size=2, drop_last=drop_last)
        assert [len(batch) for batch in order] == sizes
        assert order.num_batches == len(sizes)


def test_too_few_samples_for_one_batch():
    with pytest.raises(ValueError, match=r"7 training samples do not fill one batch: data\.batch_size=4 on 2"):
        TrainOrder(7, batch_size=4, seed=0, world_size=2)


@pytest.mark.parametrize(("num_samples", "world_size"), [(10, 1), (10, 3), (2, 3), (17, 4)])
def test_evaluation_sees_every_sample_once(num_samples, world_size):
    orders = [EvalOrder(num_samples, batch_size=3, rank=r, world_size=world_size) for r in range(world_size)]
    assert sorted(index for order in orders for index in keys(order)) == list(range(num_samples))
    assert [len(list(order)) for order in orders] == [len(order) for order in orders]


def test_evaluation_over_two_processes_equals_one(digits):
    config = DataConfig(batch_size=50, eval_batch_size=40)
    alone = torch.cat([labels for _, labels in eval_loader(digits, config)])
    shared = [torch.cat([labels for _, labels in eval_loader(digits, config, rank=r, world_size=2)]) for r in (0, 1)]
    assert len(alone) == len(digits.val) == sum(map(len, shared))
    assert torch.equal(torch.bincount(alone), torch.bincount(torch.cat(shared)))


def test_batches_are_bytes_until_the_device(digits):
    images, labels = next(iter(eval_loader(digits, DataConfig(batch_size=6))))
    assert images.dtype == torch.uint8
    assert labels.dtype == torch.int64
    sample, label = digits.val[0]
    assert torch.equal(sample, images[0])
    assert label == int(labels[0])
    expected = (images.double() / 255 - 0.3053) / 0.3759
    torch.testing.assert_close(digits.to_device_batch(images, "cpu"), expected.float(), rtol=1e-5, atol=1e-5)
