"""The learning rate as a function of one number: how much of the training is done.

That number is counted in epochs, with fractions inside an epoch, and is the one that the schedule, the display, the log
and ``metrics.csv`` use. It does not depend on how many updates an epoch has, so a run that goes on with another batch
size or number of processes keeps its schedule; and resuming needs no state of the schedule's own.
"""

from __future__ import annotations

import torch
from timm.scheduler import create_scheduler_v2
from torch import nn
from torch.optim import Optimizer

from vit_rpe.training.config.schema import TrainConfig

__all__ = ["Schedule"]

_FINE = 2**20  # timm counts updates and looks one ahead at a milestone: so fine that this shifts no update


class Schedule:
    """The rate of a config at any time.

    Raises:
        ValueError: the schedule does not fit the number of epochs.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self._probe = torch.optim.SGD([nn.Parameter(torch.zeros(1, device="cpu"))], lr=config.lr)
        self._timm, _ = create_scheduler_v2(
            self._probe,
            sched=config.schedule,
            num_epochs=config.epochs,
            warmup_epochs=config.warmup_epochs,  # type: ignore[arg-type]
            warmup_lr=config.warmup_lr,
            min_lr=config.min_lr,
            step_on_epochs=False,
            updates_per_epoch=_FINE,
        )

    def rate(self, epochs_done: float) -> float:
        """The learning rate after so many epochs, before a group's own factor."""
        if self._timm is None:
            return self.config.lr
        self._timm.step_update(epochs_done * _FINE)
        return self._probe.param_groups[0]["lr"]

    def apply(self, optimizer: Optimizer, epochs_done: float) -> float:
        """Give every group its rate, and return the one before their factors (``lr_scale``)."""
        rate = self.rate(epochs_done)
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        return rate

    def never_changes(self) -> bool:
        """Whether the rate after the warm-up is the same to the end although the schedule promises more."""
        if self.config.schedule in ("constant", "none") or self.config.warmup_epochs >= self.config.epochs:
            return False
        end = self.config.epochs - 1 / _FINE
        return self.rate(self.config.warmup_epochs) == self.rate(end)
