"""The words of a command line, put in order before they are parsed: files first, then what overrides them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from vit_rpe.checks import closest
from vit_rpe.models import VisionTransformer
from vit_rpe.training.checkpoint.run_folder import find_run
from vit_rpe.training.config.shipped import DEFAULT_CONFIG, default_config, find_config

__all__ = ["check_key", "in_order"]

_FREE_KEYS = ("model.args", "model.rpe")  # what lies below them is not ours to name
_SIZES = ("--model.img_size", "--data.img_size")


def check_key(key: str, where: str, known: Iterable[str]) -> None:
    """Raise ``ValueError`` with the closest key, or the way to give an argument of the model, for an unknown key."""
    known = sorted(known)
    if key in known or any(key.startswith(f"{name}.") for name in _FREE_KEYS):
        return
    tail = key.rsplit(".", 1)[-1]
    alike = [name for name in known if name.rsplit(".", 1)[-1] == tail]
    if not alike and tail in inspect.signature(VisionTransformer).parameters:
        hint = f"; an argument of the model goes into model.args: --model.args '{{{tail}: ...}}'"
    else:
        hint = closest(alike[0] if alike else key, known) or "; --help lists the keys"
    raise ValueError(f"unknown config key {key!r}{where}{hint}")


def in_order(words: Sequence[str], known: Iterable[str]) -> tuple[list[str], list[Path]]:
    """The words for the parser, and the config files among them, which come first wherever they stood.

    Without ``--config`` the file is that of the resumed run, or the shipped one for ``--data.name``.

    Raises:
        ValueError: an unknown key, a ``--config`` without a value or that names no file.
    """
    files: list[Path] = []
    options: list[str] = []
    plugins: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if name == "--config":
            if not equals and not waiting:
                raise ValueError("--config needs a value: a shipped config by name, or a YAML file")
            files.append(find_config(value if equals else waiting.pop(0)))
            continue
        if name.startswith("--") and name not in ("--help", "--print_config"):
            check_key(name[2:].removesuffix("+"), "", known)
        if name == "--plugin" and (equals or waiting):
            plugins.append(value if equals else waiting.pop(0))
            continue
        options.append(word)
        if word in _SIZES and len(waiting) > 1 and waiting[0].isdecimal() and waiting[1].isdecimal():
            options.append(f"[{waiting.pop(0)}, {waiting.pop(0)}]")
    if not files:
        files.append(_unnamed(options))
    options += [f"--plugin={json.dumps(plugins)}"] if plugins else []
    return [*(f"--config={file}" for file in files), *options], files


def _unnamed(words: Sequence[str]) -> Path:
    """The config where the command line names none."""
    run = _resumed_run(words)
    if run is not None:
        return run / "config.yaml"
    data = _option(words, "--data.name")
    name = DEFAULT_CONFIG if data is None else default_config(data)
    if name != DEFAULT_CONFIG:
        print(f"no --config given: what you leave out is that of {name}")
    return find_config(name)


def _resumed_run(words: Sequence[str]) -> Path | None:
    resume = _option(words, "--resume")
    place = _option(words, "--output") if resume == "auto" else resume
    return find_run(Path(place)) if place else None


def _option(words: Sequence[str], name: str) -> str | None:
    for index, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.split("=", 1)[1]
        if word == name and index + 1 < len(words):
            return words[index + 1]
    return None
