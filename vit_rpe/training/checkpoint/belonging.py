"""Whether a checkpoint belongs to a model, its data and its optimiser: asked before anything is trained or judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from vit_rpe.training.config.schema import RunConfig

__all__ = ["check_classes", "check_config_of_state", "check_vocabulary", "check_weights_of_state", "flat"]

_START_ANEW = (
    "; a run goes on only as what it was. To start another one from its weights: --model.checkpoint RUN --output OTHER"
)


def check_classes(given: Sequence[str], known: Sequence[str], *, of: str, by: str) -> None:
    """Refuse data whose classes are not those of a trained model, in its order; no names are known of some models.

    Args:
        given, known: the names of the data, and of the model.
        of, by: who has them, for the message: "the data", "the checkpoint".

    Raises:
        ValueError: shows both.
    """
    if known and list(given) != list(known):
        raise ValueError(f"{of} have the classes {_some(given)}, {by} has {_some(known)}{_difference(given, known)}")


def check_vocabulary(given: dict[str, Any], known: dict[str, Any], *, of: str, by: str) -> None:
    """Refuse text whose token numbers mean other characters than a trained model's; both are ``Treatment.to_dict()``.

    Raises:
        ValueError: shows both vocabularies, as far as they differ.
    """
    ours, theirs = given.get("characters"), known.get("characters")
    if theirs is not None and ours != theirs:
        first = ours or []
        raise ValueError(
            f"{of} have a vocabulary of {len(first)} characters, {by} has one of {len(theirs)}"
            f"{_difference([repr(item) for item in first], [repr(item) for item in theirs])}"
        )


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''} ({len(names)})"


def _difference(given: Sequence[str], known: Sequence[str]) -> str:
    """What the first names do not show: which are on one side only, or where the order parts."""
    new, gone = ([name for name in one if name not in set(other)] for one, other in ((given, known), (known, given)))
    if not new and not gone and len(given) == len(known):
        place = next(number for number, pair in enumerate(zip(given, known, strict=True)) if pair[0] != pair[1])
        return f": the same in another order, number {place} is {given[place]} here and {known[place]} there"
    if max(len(given), len(known)) <= 8:
        return ""
    sides = [f"{', '.join(names[:8])} only {where}" for names, where in ((new, "here"), (gone, "there")) if names]
    return f": {'; '.join(sides)}" if sides else ""


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The options of a config by their full names; tuples as the lists they are in a file."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and name not in ("args", "rpe"):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = list(value) if isinstance(value, tuple) else value
    return found


def _may_change(argument: str) -> bool:
    """Arguments of a model that say how it is trained or computed, not what it is."""
    return "drop" in argument or argument == "attn_impl"


def _as_list(rpe: Any) -> Any:
    """An encoding said by name, in a dict or in a list of one is the same encoding."""
    listed = rpe if isinstance(rpe, (list, tuple)) else [rpe]
    return [{"name": item} if isinstance(item, str) else item for item in listed]


def _of_model(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """What makes another model, whatever the shapes of its parameters."""
    if before["name"] != now["name"]:
        yield f"model.name was {before['name']!r}, is {now['name']!r}"
    if _as_list(before.get("rpe")) != _as_list(now.get("rpe")):
        yield f"model.rpe was {before.get('rpe')!r}, is {now.get('rpe')!r}"
    old, new = flat(before.get("args") or {}), flat(now.get("args") or {})
    for name in {**old, **new}:
        if old.get(name) != new.get(name) and not _may_change(name):
            yield f"model.args.{name} was {old.get(name)!r}, is {new.get(name)!r}"


def check_config_of_state(config: RunConfig, state: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with another model, optimiser, averaging or precision than a training state was made with.

    Args:
        config: of the run that is to go on.
        state: the training state.
        now: ``config`` as plain values.

    Raises:
        ValueError: names what differs, with both values.
    """
    before = state["config"]
    differ = list(_of_model(before["model"], now["model"]))
    if differ:
        raise ValueError(f"the checkpoint is of another model: {'; '.join(differ)}{_START_ANEW}")
    old, new = before["train"]["optimizer"], config.train.optimizer
    if old.lower() != new.lower():
        raise ValueError(
            f"the checkpoint is of another optimiser: train.optimizer was {old!r}, is {new!r}{_START_ANEW}"
        )
    wanted = {"ema": config.train.ema_decay is not None, "scaler": config.train.precision == "fp16"}
    for name, key in (("ema", "ema_decay"), ("scaler", "precision")):
        if (state.get(name) is not None) != wanted[name]:
            raise ValueError(
                f"the checkpoint was made {'without' if wanted[name] else 'with'} {name}: check train.{key}, which was "
                f"{before['train'].get(key)!r} and is {now['train'][key]!r}{_START_ANEW}"
            )


def check_weights_of_state(model: nn.Module, state: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse a model whose parameters have other shapes: its weights could be resampled, its optimiser's state not.

    Args:
        model: the model that is to go on.
        state: the training state.
        now: the config as plain values, for the reasons.

    Raises:
        ValueError: names a parameter with both shapes, and the options that differ.
    """
    saved = state["model"]
    for name, value in model.state_dict().items():
        old = saved.get(name)
        if old is None or old.shape == value.shape or (old.numel() == value.numel() == 1):  # older files had no axis
            continue
        before, after = (flat({key: part[key] for key in ("model", "data")}) for part in (state["config"], now))
        changed = [
            f"{key} was {before.get(key)!r}, is {after[key]!r}"
            for key in after
            if before.get(key) != after[key] and key.startswith(("model.", "data.img_size", "data.length", "data.char"))
        ]
        raise ValueError(
            f"the checkpoint is of another model: {name} has the shape {tuple(old.shape)} there and "
            f"{tuple(value.shape)} now{''.join(f'; {item}' for item in changed)}{_START_ANEW}"
        )
