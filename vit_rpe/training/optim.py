"""Optimiser and schedule, both from timm's factories.

Parameter groups are made from the unwrapped model, and a group holds the parameters themselves: a name that gains
``module.`` or ``_orig_mod.`` under a wrapper can therefore not slip past a rule.
"""

from __future__ import annotations

from typing import Any

import timm.optim
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from timm.scheduler import create_scheduler_v2
from timm.scheduler.scheduler import Scheduler
from torch import nn
from torch.optim import Optimizer

from vit_rpe.training.config.schema import TrainConfig

__all__ = ["make_optimizer", "make_schedule", "parameter_groups", "unwrapped"]


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside ``torch.compile``, ``DistributedDataParallel`` and ``DataParallel`` wrappers."""
    children = dict(model.named_children())
    while set(children) in ({"_orig_mod"}, {"module"}):
        (model,) = children.values()
        children = dict(model.named_children())
    return model


def parameter_groups(
    model: nn.Module, *, weight_decay: float, layer_decay: float | None = None
) -> list[dict[str, Any]]:
    """Groups of parameters for an optimiser.

    Parameters with one axis or none, and those the model names in ``no_weight_decay()`` (tokens, position embeddings
    and everything an encoding learns), are not decayed. The latter also carry ``use_fallback``: they are not weight
    matrices, so Muon leaves them to its AdamW.

    Args:
        model: the model; wrappers are taken off.
        weight_decay: decay of all the others.
        layer_decay: factor on the learning rate from each layer to the one below it (``lr_scale`` of a group).

    Returns:
        Dicts with ``params`` and ``weight_decay``, and with ``lr_scale`` or ``use_fallback`` where they apply. Every
        trainable parameter is in one group.
    """
    model = unwrapped(model)
    named: set[str] = getattr(model, "no_weight_decay", set)()
    if layer_decay is None:
        return param_groups_weight_decay(model, weight_decay, no_weight_decay_list=named, fallback_no_weight_decay=True)
    return param_groups_layer_decay(
        model,
        weight_decay,
        no_weight_decay_list=named,
        fallback_no_weight_decay=True,
        layer_decay=layer_decay,
    )


def make_optimizer(model: nn.Module, config: TrainConfig) -> Optimizer:
    """The optimiser of a config over ``parameter_groups``."""
    groups = parameter_groups(model, weight_decay=config.weight_decay, layer_decay=config.layer_decay)
    betas: dict[str, Any] = {} if config.betas is None else {"betas": tuple(config.betas)}
    return timm.optim.create_optimizer_v2(
        groups, opt=config.optimizer, lr=config.lr, momentum=config.momentum, weight_decay=0.0, **betas
    )


def make_schedule(optimizer: Optimizer, config: TrainConfig, *, updates_per_epoch: int) -> Scheduler | None:
    """The learning rate as a function of the update alone, so that resuming needs no state of its own.

    Returns:
        A timm scheduler for ``step_update(updates_done)``, or ``None`` for ``schedule: none``.
    """
    scheduler, _ = create_scheduler_v2(
        optimizer,
        sched=config.schedule,
        num_epochs=config.epochs,
        warmup_epochs=config.warmup_epochs,  # type: ignore[arg-type]
        warmup_lr=config.warmup_lr,
        min_lr=config.min_lr,
        step_on_epochs=False,
        updates_per_epoch=updates_per_epoch,
    )
    return scheduler
