"""What resuming means for a config: where from, and what has changed since."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from vit_rpe.training.checkpoint.files import newest
from vit_rpe.training.checkpoint.state import find_state, read_state
from vit_rpe.training.config.schema import RunConfig

__all__ = ["changes", "check_epochs", "find_resumed"]

_FREE = ("output", "resume", "overwrite", "pictures", "trackers", "train.epochs", "train.device", "train.log_every",
         "train.keep", "train.checkpoint_every_steps", "data.num_workers", "data.path")  # fmt: skip


def find_resumed(config: RunConfig, folder: Path) -> dict[str, Any] | None:
    """The state to go on from, or ``None`` for a new run.

    Raises:
        ValueError: ``resume`` names a place without a state, or the run folder holds a run that is neither resumed
            nor to be overwritten.
    """
    if config.resume not in (None, "auto"):
        return read_state(find_state(Path(str(config.resume))))
    if newest(folder / "last") is None:
        return None
    if config.resume == "auto":
        return read_state(find_state(folder))
    if config.overwrite:
        return None
    raise ValueError(
        f"{folder} holds a run already: --resume auto goes on with it, --overwrite true replaces it, "
        "another --output leaves it alone"
    )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and name != "args":
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat


def changes(config: RunConfig, state: dict[str, Any]) -> list[str]:
    """One phrase for every key whose value makes the rest of the run differ from the run that is resumed."""
    before, now = _flat(state["config"]), _flat(asdict(config))
    keys = [key for key in {**before, **now} if key not in _FREE and before.get(key) != now.get(key)]
    return [f"{key} was {before.get(key)!r}, is {now.get(key)!r}" for key in keys]


def check_epochs(config: RunConfig, state: dict[str, Any]) -> str | None:
    """A warning if ``epochs`` grew, because the schedule is stretched.

    Raises:
        ValueError: fewer epochs are asked for than are done.
    """
    done, planned = state["counters"]["epoch"], state["config"]["train"]["epochs"]
    epochs, begun = config.train.epochs, done + bool(state["counters"]["step"])
    if epochs < begun:
        raise ValueError(f"train.epochs is {epochs}, but the checkpoint has {done} epochs behind it already")
    if epochs != planned and config.train.schedule not in ("constant", "none"):
        return (
            f"train.epochs was {planned} and is {epochs}: the {config.train.schedule} schedule is stretched over "
            "the new length, so the learning rate jumps here and the run differs from one planned this long"
        )
    return None
