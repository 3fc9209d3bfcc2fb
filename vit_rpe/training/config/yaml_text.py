"""YAML 1.2 as people write it: ``on``, ``off``, ``yes`` and ``no`` are words, ``1e-3`` is a number, ``010`` is ten.

Read by ruamel.yaml, which refuses a key that is given twice. What is written holds no word that a reader of version 1.1
would take for something else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import set_dumper, set_loader
from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

__all__ = ["PARSER_MODE", "dump_yaml", "load_yaml", "read_yaml"]

PARSER_MODE = "yaml_1_2"


class _Constructor(SafeConstructor):
    """Dates, ``=``, digits with ``_`` between them and ``0b11`` are text in version 1.2."""

    def construct_number(self, node: Any) -> Any:
        if re.fullmatch(r".*_.*|[-+]?0b.*", node.value):
            return self.construct_yaml_str(node)
        is_int = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)


for _tag in ("timestamp", "value"):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_tag}", SafeConstructor.construct_yaml_str)
for _tag in ("int", "float"):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_tag}", _Constructor.construct_number)


def load_yaml(text: str) -> Any:
    """Read YAML text into mappings, lists, numbers and strings.

    Raises:
        ValueError: it is not YAML, or gives a key twice; one line.
    """
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    try:
        return reader.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise ValueError(f"{where}{error.problem or error.context}") from error
    except YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def read_yaml(path: Path) -> Any:
    """The content of a file.

    Raises:
        ValueError: it is not YAML in UTF-8, or gives a key twice; the message names the file.
    """
    try:
        return load_yaml(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error


class _Dumper(yaml.SafeDumper):
    """Quotes what version 1.2 would not read as text; what 1.1 would not is quoted by the library."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    try:
        plain = load_yaml(value) == value
    except ValueError:
        plain = True  # punctuation, which the library quotes
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else "'")


_Dumper.add_representer(str, _text)


def dump_yaml(content: Any) -> str:
    """``content`` as YAML, in its own order; readers of version 1.1 and of 1.2 read the same."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


set_loader(PARSER_MODE, load_yaml, exceptions=(ValueError,))
set_dumper(PARSER_MODE, dump_yaml)
