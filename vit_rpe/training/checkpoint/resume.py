"""What resuming means for a config: where from, and what has changed since."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from vit_rpe.training.checkpoint.belonging import check_config_of_state, flat
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, read_info
from vit_rpe.training.checkpoint.files import newest
from vit_rpe.training.checkpoint.state import find_state, read_state
from vit_rpe.training.config.schema import RunConfig, TrainConfig
from vit_rpe.training.schedule import Schedule

__all__ = ["PLACES", "Resumed", "changes", "find_resumed", "rate_jump"]

PLACES = (
    *("output", "resume", "overwrite", "pictures", "trackers", "plugin"),
    *("train.device", "train.log_every", "train.keep", "train.pictures_every", "train.checkpoint_every_steps"),
    *("data.path", "data.num_workers"),
)
"""Options that say where a run lies, is computed and is shown: they may change without making it another run."""
_FREE = (*PLACES, "train.epochs")


class Resumed(NamedTuple):
    """A training state, and what lies beside it: of which model and data it is."""

    state: dict[str, Any]
    info: CheckpointInfo


def _read(file: Path, config: RunConfig) -> Resumed:
    resumed = Resumed(read_state(file), read_info(file.parent))
    _check_epochs(config, resumed.state)
    check_config_of_state(config, resumed.state, asdict(config))
    return resumed


def find_resumed(config: RunConfig, folder: Path) -> Resumed | None:
    """The state to go on from, or ``None`` for a new run.

    Raises:
        ValueError: ``resume`` names a place without a state or with one that is not of this config, or the run folder
            holds a run that is neither resumed nor to be overwritten.
    """
    if config.resume not in (None, "auto"):
        return _read(find_state(Path(str(config.resume))), config)
    if newest(folder / "last") is None:
        return None
    if config.resume == "auto":
        return _read(find_state(folder), config)
    if config.overwrite:
        return None
    raise ValueError(
        f"{folder} holds a run already: --resume auto goes on with it, --overwrite true replaces it, "
        "another --output leaves it alone"
    )


def changes(config: RunConfig, state: dict[str, Any], *, processes: int) -> list[str]:
    """One phrase for everything that makes the rest of the run differ from the run that is resumed."""
    defaults = flat({"train": asdict(TrainConfig())})  # for options that the checkpoint's version did not have
    before, now = {**defaults, **flat(state["config"])}, flat(asdict(config))
    keys = [key for key in {**before, **now} if key not in _FREE and before.get(key) != now.get(key)]
    phrases = [f"{key} was {before.get(key)!r}, is {now.get(key)!r}" for key in keys]
    given = len(state["processes"])
    if given != processes:
        phrases.append(f"{_count(given)} made the checkpoint, now {_count(processes)} train")
    samples = [
        number * flat["data.batch_size"] * flat["train.accumulate"]
        for number, flat in ((given, before), (processes, now))
    ]
    if samples[0] != samples[1]:
        phrases.append(
            f"an update was made from {samples[0]} samples and is now from {samples[1]}; the schedule goes by the "
            "share of the training done and stays where it was"
        )
    return phrases


def _count(processes: int) -> str:
    return f"{processes} process{'es' if processes != 1 else ''}"


def _check_epochs(config: RunConfig, state: dict[str, Any]) -> None:
    """Raise ``ValueError`` if fewer epochs are asked for than are done."""
    done = state["counters"]["epoch"]
    epochs, begun = config.train.epochs, done + bool(state["counters"]["step"])
    if epochs < begun:
        raise ValueError(f"train.epochs is {epochs}, but the checkpoint has {done} epochs behind it already")


def rate_jump(config: RunConfig, state: dict[str, Any], *, epochs_done: float) -> str | None:
    """A sentence with both rates, if the learning rate goes on at another one than the resumed run would have had."""
    known = {item.name for item in fields(TrainConfig)} - {"distill"}
    before = TrainConfig(**{key: value for key, value in state["config"]["train"].items() if key in known})
    old, new = (Schedule(train).rate(epochs_done) for train in (before, config.train))
    if abs(old - new) <= 1e-9 * max(old, new):
        return None
    why = ""
    if before.epochs != config.train.epochs:
        why = (
            f"train.epochs was {before.epochs} and is {config.train.epochs}: the {config.train.schedule} schedule is "
            f"{'stretched' if config.train.epochs > before.epochs else 'squeezed'}; "
        )
    return f"{why}the learning rate goes on at {new:.3g}, where the run before would have had {old:.3g}"
