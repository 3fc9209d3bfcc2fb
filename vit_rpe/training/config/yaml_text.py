"""YAML as people write it today (version 1.2): ``on``, ``off``, ``yes`` and ``no`` are words, ``1e-3`` is a number.

The library reads version 1.1, in which ``rpe: {name: irpe, on: [q, k]}`` has a key ``True``.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from jsonargparse import set_dumper, set_loader

__all__ = ["PARSER_MODE", "dump_yaml", "load_yaml"]

PARSER_MODE = "yaml_1_2"
_BOOL, _FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag not in (_BOOL, _FLOAT)]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"^(?:[-+]?(?:\d[\d_]*\.\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+|[-+]?\.(?:inf|Inf|INF)"
        r"|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


def load_yaml(text: str) -> Any:
    """The content of ``text``.

    Raises:
        yaml.YAMLError: it is not YAML.
    """
    return yaml.load(text, Loader=_Loader)


def dump_yaml(content: Any) -> str:
    """``content`` as YAML, in its own order; words of version 1.1 are quoted, so that either version reads it."""
    return yaml.safe_dump(content, sort_keys=False)


set_loader(PARSER_MODE, load_yaml, exceptions=(yaml.YAMLError,))
set_dumper(PARSER_MODE, dump_yaml)
