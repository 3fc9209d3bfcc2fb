"""From words on a command line to a checked ``RunConfig``.

A YAML file gives the experiment, options override single keys. A wrong key, type or value is refused in one line,
before any data or weights are touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, cast, get_args, get_type_hints

from jsonargparse import ArgumentError, ArgumentParser

from vit_rpe.checks import closest
from vit_rpe.data import DataOptions, ImageData, TextData, read_config
from vit_rpe.plugins import how_to_pass, load_plugins, missing_plugins
from vit_rpe.training.checkpoint.run_folder import default_output
from vit_rpe.training.config.check import check_config
from vit_rpe.training.config.schema import RunConfig
from vit_rpe.training.config.words import check_key, in_order
from vit_rpe.training.config.yaml_text import PARSER_MODE, load_yaml, read_yaml

__all__ = ["config_from_dict", "config_keys", "option_texts", "parse_config"]


def _parser(prog: str) -> ArgumentParser:
    parser = ArgumentParser(
        prog=prog,
        usage=f"{prog} [--config NAME_OR_FILE] [--SECTION.KEY VALUE ...]",
        description="Train a vision transformer. Every option is a key of the config.",
        epilog="Without --config, the shipped config of --data.name runs (digits, if that is not given either). Options"
        " override configs wherever they stand. Values are YAML: --model.rpe '[bias, rope]'.",
        exit_on_error=False,
        allow_abbrev=False,
        parser_mode=PARSER_MODE,
    )
    parser.add_argument("--config", action="config", help="A shipped config by name, or a YAML file.")
    parser.add_class_arguments(RunConfig, skip={"data"}, fail_untyped=True)
    parser.add_class_arguments(ImageData, "data", fail_untyped=True)
    shared = {item.name for item in fields(DataOptions)}
    parser.add_class_arguments(TextData, "data", as_group=False, skip=shared, fail_untyped=True)
    return parser


def _keys(section: type, prefix: str = "") -> Iterator[str]:
    hints = get_type_hints(section)
    for item in fields(section):
        yield prefix + item.name
        for inner in get_args(hints[item.name]) or (hints[item.name],):  # data: one of two sections
            if is_dataclass(inner):
                yield from _keys(cast(type, inner), f"{prefix}{item.name}.")


def config_keys() -> frozenset[str]:
    """Every key of a config, dotted."""
    return frozenset(_keys(RunConfig))


def option_texts(words: Sequence[str], base: str) -> dict[str, str]:
    """The options on a command line by key, each value as the text it is; values are checked by ``parse_config``.

    Args:
        words: ``--SECTION.KEY VALUE`` or ``--SECTION.KEY=VALUE``.
        base: the config that they change.

    Raises:
        ValueError: an unknown key, or one without a value.
    """
    ordered, _ = in_order([f"--config={base}", *words], config_keys())
    found: dict[str, str] = {}
    waiting = ordered[1:]
    while waiting:
        name, equals, value = waiting.pop(0).partition("=")
        if not name.startswith("--"):
            raise ValueError(f"{name!r} belongs to no option: values of several words are quoted, lists are [1, 2]")
        if not equals and (not waiting or waiting[0].startswith("--")):
            raise ValueError(f"{name} needs a value")
        found[name[2:]] = value if equals else waiting.pop(0)
    return found


def _numbers(section: type = RunConfig, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The keys that hold one number, and the word for its type."""
    for name, hint in get_type_hints(section).items():
        inside = get_args(hint) or (hint,)
        kinds = [kind.__name__ for kind in (int, float) if kind in inside]
        if kinds and set(inside) <= {int, float, NoneType}:
            yield prefix + name, kinds[-1]
        for inner in inside:
            if is_dataclass(inner):
                yield from _numbers(cast(type, inner), f"{prefix}{name}.")


def _check_number(key: str, value: Any, kinds: dict[str, str], where: str = "") -> None:
    """Refuse text where a number stands, as read by version 1.2: the parser would read it by 1.1 (``1:30`` as 90)."""
    if key in kinds and isinstance(value, str):
        raise ValueError(f'config key "{key}": expected {kinds[key]}. Got value: {value}{where}')


def _check_words(words: Sequence[str]) -> None:
    """Refuse text where a number stands among the options."""
    kinds = dict(_numbers())
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name.removeprefix("--") in kinds:
            with suppress(ValueError):  # no YAML, which the parser tells
                value = load_yaml(value if equals else following)
            _check_number(name.removeprefix("--"), value, kinds)


def _check_file(path: Path, known: frozenset[str]) -> None:
    content = read_yaml(path)
    if content is None:
        raise ValueError(f"{path} is empty: a config holds keys and values, for example train: {{epochs: 10}}")
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold keys and values, got a {type(content).__name__}")

    kinds = dict(_numbers())

    def walk(section: dict[str, Any], prefix: str) -> None:
        for name, value in section.items():
            key = f"{prefix}{name}"
            check_key(key, f" in {path}", known)
            _check_number(key, value, kinds, f" in {path}")
            if isinstance(value, dict) and key not in ("model.args", "model.rpe"):
                walk(value, f"{key}.")

    walk(content, "")


def _readable(message: str) -> str:
    """The parser's complaint about a value, in one line and without Python's class notation."""
    message = re.sub(r"<class '(\w+)'>", r"\1", " ".join(message.split()))
    message = (
        message.replace("Parser key", "config key")
        .replace("typing.", "")
        .replace("NoneType", "null")
        .replace("Expected a ", "expected ")
    )
    choices = re.search(r"Literal\[(.*?)\].*Got value: (\S+)", message)
    return message + (closest(choices[2], re.findall(r"'(.*?)'", choices[1])) if choices else "")


def config_from_dict(values: dict[str, Any], section: type = RunConfig) -> Any:
    """Build a section (a ``RunConfig`` by default) from nested plain values, keys checked.

    Raises:
        ValueError: a key does not exist.
    """
    if not isinstance(values, dict):
        raise ValueError(f"a section of a config must hold keys and values, got {values!r} for {section.__name__}")
    hints = get_type_hints(section)
    known = {item.name for item in fields(section)}
    for key in values:
        check_key(key, "", known)
    built = {}
    for key, value in values.items():
        if is_dataclass(hints[key]):
            value = config_from_dict(value, hints[key])
        built[key] = read_config(value) if hints[key] == ImageData | TextData else value
    return section(**built)


def parse_config(words: Sequence[str], *, prog: str = "vit-rpe train") -> RunConfig:
    """Parse and check a command line.

    Args:
        words: the words after the program's name.
        prog: the program's name in ``--help``.

    Returns:
        The config; ``output`` is set.

    Raises:
        ValueError: an unknown key, a value of a wrong type or out of range, or a missing config; one line.
    """
    known = config_keys()
    if {"-h", "--help"} & set(words):
        words = ["--help"]
    ordered, files = in_order(words, known)
    for file in files:
        _check_file(file, known)
    _check_words(ordered)
    try:
        values = _parser(prog).parse_args(ordered).as_dict()
    except ArgumentError as error:
        raise ValueError(_readable(str(error))) from error
    values.pop("config", None)
    config = config_from_dict(values)
    _expand_home(config)
    named = any(word.partition("=")[0] in ("--output", "--config") for word in words)
    if config.resume not in (None, "auto") and not named:
        config.output = None  # a run goes on where it lies now, not where it was made
    config.output = config.output or str(default_output(files[-1], resume=config.resume))
    check_config(config)
    _import_plugins(config, words)
    return config


def _expand_home(section: Any) -> None:
    """``~`` in what names a file or folder of the run; data sections do it for their own."""
    for own in fields(section):
        value = getattr(section, own.name)
        if is_dataclass(value):
            _expand_home(value)
        elif own.name in ("output", "resume", "checkpoint", "teacher") and value is not None:
            setattr(section, own.name, os.path.expanduser(value))


def _import_plugins(config: RunConfig, words: Sequence[str]) -> None:
    """Import what the command line or the caller's own config names; what a resumed run names is only compared."""
    named = any(word.partition("=")[0] in ("--plugin", "--config") for word in words)
    if named or config.resume is None:
        load_plugins(config.plugin)
    missing = missing_plugins(config.plugin)
    if missing:
        raise ValueError(f"the run cannot be resumed like this: {how_to_pass(missing)}")
