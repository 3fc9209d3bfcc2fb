"""From words on a command line to a checked ``RunConfig``.

A YAML file gives the experiment, options override single keys. A wrong key, type or value is refused in one line,
before any data or weights are touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from vit_rpe.checks import closest
from vit_rpe.data import DataOptions, ImageData, TextData, read_config
from vit_rpe.training.checkpoint.run_folder import default_output, find_run
from vit_rpe.training.config.check import check_config
from vit_rpe.training.config.schema import RunConfig
from vit_rpe.training.config.shipped import DEFAULT_CONFIG, find_config
from vit_rpe.training.config.yaml_text import PARSER_MODE, load_yaml

__all__ = ["config_from_dict", "parse_config"]

_FREE_KEYS = ("model.args", "model.rpe")  # what lies below them is not ours to name


def _parser(prog: str) -> ArgumentParser:
    parser = ArgumentParser(
        prog=prog,
        usage=f"{prog} [--config NAME_OR_FILE] [--SECTION.KEY VALUE ...]",
        description="Train a vision transformer. Every option is a key of the config.",
        epilog=f"Without --config, {DEFAULT_CONFIG} runs. Values are YAML: --model.rpe '[bias, rope]'.",
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


def _hint(key: str, known: Iterable[str]) -> str:
    """The closest key, or the one that ends alike (``epochs`` for ``train.epochs``), or where to look."""
    known = sorted(known)
    tail = key.rsplit(".", 1)[-1]
    alike = [name for name in known if name.rsplit(".", 1)[-1] == tail]
    return closest(alike[0] if alike else key, known) or "; --help lists the keys"


def _check_key(key: str, where: str, known: frozenset[str]) -> None:
    free = any(key.startswith(f"{name}.") for name in _FREE_KEYS)
    if key not in known and not free:
        raise ValueError(f"unknown config key {key!r}{where}{_hint(key, known)}")


def _check_file(path: Path, known: frozenset[str]) -> None:
    try:
        content = load_yaml(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    if content is not None and not isinstance(content, dict):
        raise ValueError(f"{path} must hold keys and values, got a {type(content).__name__}")

    def walk(section: dict[str, Any], prefix: str) -> None:
        for name, value in section.items():
            key = f"{prefix}{name}"
            _check_key(key, f" in {path}", known)
            if isinstance(value, dict) and key not in _FREE_KEYS:
                walk(value, f"{key}.")

    walk(content or {}, "")


def _option(words: Sequence[str], name: str) -> str | None:
    for index, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.split("=", 1)[1]
        if word == name and index + 1 < len(words):
            return words[index + 1]
    return None


def _resumed_config(words: Sequence[str]) -> str | None:
    """The config of the run that is resumed, if the command line names no other."""
    resume = _option(words, "--resume")
    run = _option(words, "--output") if resume == "auto" else resume
    folder = find_run(Path(run)) if run else None
    config = folder / "config.yaml" if folder else None
    return str(config) if config and config.is_file() else None


def _resolved(words: Sequence[str], known: frozenset[str]) -> tuple[list[str], str]:
    """The words with ``--config`` turned into a path, and the experiment's name."""
    result: list[str] = []
    names: list[str] = []
    expect_config = False
    for word in words:
        name, equals, value = word.partition("=")
        if expect_config or (name == "--config" and equals):
            path = find_config(word if expect_config else value)
            _check_file(path, known)
            names.append(str(path))
            result.append(f"--config={path}")
            expect_config = False
        elif word == "--config":
            expect_config = True
        else:
            if name.startswith("--") and name not in ("--help", "--print_config"):
                _check_key(name[2:].removesuffix("+"), "", known)
            result.append(word)
    if expect_config:
        raise ValueError("--config needs a value: a shipped config by name, or a YAML file")
    if not names:
        resumed = _resumed_config(words)
        path = find_config(resumed or DEFAULT_CONFIG)
        if resumed is None and (_option(words, "--data.name") or "digits") != "digits":
            print(f"no --config given: what you leave out is that of {DEFAULT_CONFIG}")
        result.insert(0, f"--config={path}")
        names.append(str(path))
    return result, names[-1]


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
        if key not in known:
            raise ValueError(f"unknown config key {key!r}{_hint(key, known)}")
    built = {}
    for key, value in values.items():
        if is_dataclass(hints[key]):
            value = config_from_dict(value, hints[key])
        built[key] = read_config(value) if hints[key] == ImageData | TextData else value
    return section(**built)


def parse_config(words: Sequence[str], *, prog: str = "train.py") -> RunConfig:
    """Parse and check a command line.

    Args:
        words: the words after the program's name.
        prog: the program's name in ``--help``.

    Returns:
        The config; ``output`` is set.

    Raises:
        ValueError: an unknown key, a value of a wrong type or out of range, or a missing config; one line.
    """
    known = frozenset(_keys(RunConfig))
    if {"-h", "--help"} & set(words):
        words = ["--help"]
    resolved, experiment = _resolved(words, known)
    try:
        values = _parser(prog).parse_args(resolved).as_dict()
    except ArgumentError as error:
        raise ValueError(_readable(str(error))) from error
    values.pop("config", None)
    config = config_from_dict(values)
    config.output = config.output or str(default_output(Path(experiment), resume=config.resume))
    check_config(config)
    return config
