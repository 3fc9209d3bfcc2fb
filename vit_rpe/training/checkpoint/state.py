"""The whole state of a run, as plain tensors, numbers and strings: ``torch.load(..., weights_only=True)`` reads it.

What is a pure function of (seed, epoch, update) is not in it: data order, augmentation, the learning rate. The random
state of dropout and its like is seeded anew each epoch and kept for a checkpoint inside an epoch.
"""

from __future__ import annotations

import random
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object

from vit_rpe.training.checkpoint.files import newest
from vit_rpe.training.checkpoint.run_folder import find_run
from vit_rpe.training.checkpoint.sharding import load_optimizer, load_weights, optimizer_state, weights
from vit_rpe.training.optim import parameter_names
from vit_rpe.training.session import Counters, Session

__all__ = [
    "STATE_FILE",
    "capture",
    "find_state",
    "random_state",
    "read_state",
    "restore",
    "restore_inside_epoch",
    "set_random_state",
]

STATE_FILE = "training_state.pt"


def random_state() -> dict[str, Any]:
    """This process's random state, of Python, NumPy and torch."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002 - what timm draws from
    return {
        "python": random.getstate(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, gauss],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Put back what ``random_state`` gave."""
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


def capture(session: Session) -> dict[str, Any]:
    """The state now; every process calls it, the first one writes it."""
    scaler = session.accelerator.scaler
    own = {"random": random_state(), "meters": session.meters.state_dict()}
    return {
        "model": weights(session),
        "optimizer": optimizer_state(session),
        "ema": None if session.ema is None else session.ema.module.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
        "counters": asdict(session.counters),
        "processes": gather_object([own]),
        "updates_per_epoch": session.updates_per_epoch,
        "parameter_names": None if session.sharded else parameter_names(session.model, session.optimizer),
        "config": asdict(session.config),
    }


def find_state(path: Path) -> Path:
    """The file with the state: in ``path``, in its ``last/``, or ``path`` itself.

    Raises:
        ValueError: there is none.
    """
    if path.is_file():
        path = path.parent
    for place in (path / "last", path):
        folder = newest(place)
        if folder is not None and (folder / STATE_FILE).is_file():
            return folder / STATE_FILE
    run = find_run(path)
    hint = f"; try {run / 'last'}" if run is not None and newest(run / "last") is not None else ""
    raise ValueError(f"nothing to resume at {path}: no {STATE_FILE} there or in its last/{hint}")


def read_state(file: Path) -> dict[str, Any]:
    """Read a state without running code.

    Raises:
        ValueError: the file is damaged or of another kind.
    """
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        missing = {"model", "optimizer", "counters", "config"} - set(state)
    except Exception as error:
        raise ValueError(f"cannot read {file}: {error}") from error
    if missing:
        raise ValueError(f"{file} is no training state: it lacks {', '.join(sorted(missing))}")
    return state


def restore(session: Session, state: dict[str, Any]) -> bool:
    """Continue from a state, up to the random state (see ``restore_inside_epoch``).

    Returns:
        Whether the rest of an unfinished epoch has the very batches it would have had. If not, as with another batch
        size or number of processes, as much of the epoch counts as done as was, in whole updates of the new size.

    Raises:
        ValueError: the state is of another model or optimiser.
    """
    scaler = session.accelerator.scaler
    try:
        load_weights(session, state["model"])
        load_optimizer(session, state["optimizer"], state.get("parameter_names"))
        if session.ema is not None:
            session.ema.module.load_state_dict(state["ema"])
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"the checkpoint is of another model or optimiser: {error}") from error
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    known = {item.name for item in fields(Counters)}
    session.counters = Counters(**{name: state["counters"][name] for name in known})
    same = _cut_alike(session, state)
    if session.counters.step and not same:
        session.counters.step = _same_share(session, state)
    return same


def _cut_alike(session: Session, state: dict[str, Any]) -> bool:
    """Whether an epoch consists of the same updates as when the state was written."""

    def cut(config: dict[str, Any]) -> list[Any]:
        return [config["train"]["accumulate"], *(config["data"].get(key) for key in ("batch_size", "drop_last"))]

    alike = len(state["processes"]) == session.accelerator.num_processes
    alike &= cut(state["config"]) == cut(asdict(session.config))
    return alike and state.get("updates_per_epoch") in (None, session.updates_per_epoch)


def _same_share(session: Session, state: dict[str, Any]) -> int:
    """Updates of the new size that are no more of an epoch than the updates that were done."""
    before = state.get("updates_per_epoch")
    if before is None:
        raise ValueError(
            "the checkpoint was made inside an epoch, by a version that did not note how many updates an epoch has: "
            "use the batch size and the number of processes it was made with, or resume from the end of an epoch"
        )
    return session.counters.step * session.updates_per_epoch // before


def restore_inside_epoch(session: Session, state: dict[str, Any]) -> None:
    """Put back this process's random state and running means, after the epoch's loader has started."""
    own = state["processes"][session.accelerator.process_index]
    set_random_state(own["random"])
    session.meters.load_state_dict(own["meters"])
    nothing = torch.zeros((), device=session.accelerator.device)
    session.meters.update(nothing, nothing, 0)  # sums that were only loaded warn that they are empty
