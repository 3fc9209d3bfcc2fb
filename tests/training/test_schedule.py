"""The learning rate goes by the share of the training done, however many updates an epoch has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from timm.scheduler import create_scheduler_v2
from torch import nn

from vit_rpe.training.config.check import SCHEDULES
from vit_rpe.training.config.schema import TrainConfig
from vit_rpe.training.schedule import Schedule


def _optimizer(*scales: float) -> torch.optim.Optimizer:
    groups = [{"params": [nn.Parameter(torch.zeros(2))], "lr_scale": scale} for scale in scales]
    return torch.optim.SGD(groups, lr=1.0)


def test_rates_within_epochs_pass_through_those_per_epoch() -> None:
    """Cosine with warm-up inside its length, base 1e-3, 10 epochs: the values at the epochs' first updates."""
    schedule = Schedule(TrainConfig(epochs=10, lr=1e-3, warmup_epochs=2, warmup_lr=1e-6, min_lr=0))
    expected = [1e-6, 5.005e-4, 9.045085e-4, 7.938926e-4, 6.545085e-4, 5e-4]
    assert [schedule.rate(epoch) for epoch in range(6)] == pytest.approx(expected, rel=1e-6)
    assert schedule.rate(1) < schedule.rate(8 / 7) < schedule.rate(13 / 7)


@pytest.mark.parametrize(
    ("name", "warmup"),
    [
        (name, warmup)
        for name in SCHEDULES
        for warmup in (0.0, 0.5, 3.0)
        if name != "none" and (name, warmup) != ("rsqrt", 0.0)  # rsqrt is defined by its warm-up
    ],
)
@pytest.mark.parametrize("updates", [7, 64])
def test_the_rate_is_what_timm_gives_an_unbroken_run(name: str, warmup: float, updates: int) -> None:
    """timm's own scheduler over the updates of a run is the oracle; it rounds some places to whole updates."""
    config = TrainConfig(epochs=100, schedule=name, warmup_epochs=warmup, lr=0.02)
    optimizer = _optimizer(1.0)
    optimizer.param_groups[0]["lr"] = config.lr
    theirs, _ = create_scheduler_v2(
        optimizer,
        sched=name,
        num_epochs=100,
        warmup_epochs=warmup,  # type: ignore[arg-type]
        warmup_lr=config.warmup_lr,
        min_lr=config.min_lr,
        step_on_epochs=False,
        updates_per_epoch=updates,
    )
    schedule = Schedule(config)
    for update in range(0, 100 * updates, 5):
        if name == "multistep" and (update + 1) % (90 * updates) == 0:
            continue
        theirs.step_update(update)
        rounded = 2e-4 if name in ("wsd", "rsqrt") else 1e-9
        assert schedule.rate(update / updates) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-4, abs=rounded)


def test_rsqrt_needs_a_warm_up() -> None:
    with pytest.raises(ValueError, match="warmup"):
        Schedule(TrainConfig(schedule="rsqrt", warmup_epochs=0))


def test_no_schedule_keeps_the_rate_and_every_group_its_factor() -> None:
    schedule, optimizer = Schedule(TrainConfig(schedule="none", lr=0.02, warmup_epochs=3)), _optimizer(1.0, 0.25)
    assert schedule.apply(optimizer, 1.5) == 0.02
    assert [group["lr"] for group in optimizer.param_groups] == [0.02, 0.005]


def test_a_schedule_that_cannot_change_the_rate_is_noticed() -> None:
    config = TrainConfig(epochs=60, schedule="step")
    assert Schedule(config).never_changes()
    assert not Schedule(replace(config, epochs=120)).never_changes()
    assert not Schedule(replace(config, schedule="constant")).never_changes()
    assert not Schedule(replace(config, schedule="cosine")).never_changes()
