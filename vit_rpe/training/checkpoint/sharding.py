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

from vit_rpe.training.optim import parameter_names
from vit_rpe.training.session import Session

__all__ = ["batches_of_every_process", "load_optimizer", "load_weights", "optimizer_state", "weights"]

_OF_CONFIG = ("lr", "lr_scale", "weight_decay", "betas", "momentum", "use_fallback")
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


def load_optimizer(session: Session, values: dict[str, Any], names: list[list[str]] | None) -> None:
    """Load what ``optimizer_state`` gave; rates, decay and betas stay those of the session's own config.

    Args:
        names: the parameters of each group when ``values`` were taken, so that groups may be cut differently now;
            ``None`` for files that do not hold them, whose groups must be ours.
    """
    groups = session.optimizer.param_groups
    own = [{key: value for key, value in group.items() if key in _OF_CONFIG} for group in groups]
    if session.sharded:
        set_optimizer_state_dict(session.model, session.optimizer.optimizer, values, options=_WHOLE)
    else:
        now = parameter_names(session.model, session.optimizer)
        regroup = names is not None and names != now
        session.optimizer.load_state_dict(_regrouped(values, names or [], now) if regroup else values)
        _reshape(session.optimizer)
    for group, kept in zip(session.optimizer.param_groups, own, strict=True):
        for key in _OF_CONFIG:
            group.pop(key, None)
        group |= kept


def _reshape(optimizer: Any) -> None:
    """Bring the state of parameters that had no axis, in older files, to the one entry they have now."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and key != "step" and parameter.shape == (1,) and value.ndim == 0:
                state[key] = value.reshape(1)


def _regrouped(values: dict[str, Any], before: list[list[str]], now: list[list[str]]) -> dict[str, Any]:
    """An optimiser's state in which the parameters are grouped as in ``now``.

    Raises:
        ValueError: the parameters are not the same.
    """
    numbers = {name: number for number, name in enumerate(name for group in before for name in group)}
    wanted = [name for group in now for name in group]
    if set(wanted) != set(numbers):
        raise ValueError(f"its parameters differ: {', '.join(sorted(set(wanted) ^ set(numbers))[:6])}")
    state = {
        number: values["state"][numbers[name]] for number, name in enumerate(wanted) if numbers[name] in values["state"]
    }
    common = values["param_groups"][0]  # what an optimiser itself notes in a group is alike in all
    groups, first = [], 0
    for group in now:
        groups.append({**common, "params": list(range(first, first + len(group)))})
        first += len(group)
    return {"state": state, "param_groups": groups}


def batches_of_every_process(session: Session) -> int:
    """Evaluation batches of the process that has most: a sharded model must be called equally often by all."""
    accelerator = session.accelerator
    own = torch.tensor([len(session.val_batches)], device=accelerator.device)
    return int(accelerator.gather(own).max())
