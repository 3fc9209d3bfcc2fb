"""Weights and optimiser state that FSDP2 spreads over processes, put together for a checkpoint and spread again.

Without sharding the plain ``state_dict`` of model and optimiser is used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from vit_rpe.training.session import Session

__all__ = ["batches_of_every_process", "load_optimizer", "load_weights", "optimizer_state", "weights"]

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def weights(session: Session) -> dict[str, Any]:
    """The weights in training, whole on the first process; every process calls it."""
    if session.sharded:
        return get_model_state_dict(session.model, options=_WHOLE)
    return session.model.state_dict()


def optimizer_state(session: Session) -> dict[str, Any]:
    """The optimiser's state, whole on the first process; every process calls it."""
    if session.sharded:
        return get_optimizer_state_dict(session.model, session.optimizer.optimizer, options=_WHOLE)
    return session.optimizer.state_dict()


def load_weights(session: Session, values: dict[str, Any]) -> None:
    """Load what ``weights`` gave."""
    if session.sharded:
        set_model_state_dict(session.model, values, options=_WHOLE)
    else:
        session.model.load_state_dict(values)


def load_optimizer(session: Session, values: dict[str, Any]) -> None:
    """Load what ``optimizer_state`` gave."""
    if session.sharded:
        set_optimizer_state_dict(session.model, session.optimizer.optimizer, values, options=_WHOLE)
    else:
        session.optimizer.load_state_dict(values)


def batches_of_every_process(session: Session) -> int:
    """Evaluation batches of the process that has most: a sharded model must be called equally often by all."""
    accelerator = session.accelerator
    own = torch.tensor([len(session.val_batches)], device=accelerator.device)
    return int(accelerator.gather(own).max())
