"""Encodings by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

from vit_rpe.checks import unknown_name
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.plugins import load_installed

Encoding = TypeVar("Encoding", bound=type[PositionEncoding])
_REGISTRY: dict[str, type[PositionEncoding]] = {}


def register(name: str, card: Card) -> Callable[[Encoding], Encoding]:
    """Class decorator: make an encoding known under ``name`` to every model, command and picture."""

    def add(cls: Encoding) -> Encoding:
        if name in _REGISTRY and _REGISTRY[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"an encoding named {name!r} exists already: {_REGISTRY[name].__qualname__}")
        cls.name = name
        cls.card = card
        _REGISTRY[name] = cls
        return cls

    return add


def list_encodings() -> list[str]:
    """Names of all registered encodings, sorted; those of installed plug-ins included."""
    load_installed()
    return sorted(_REGISTRY)


def encoding_class(name: str) -> type[PositionEncoding]:
    """The class registered under ``name``.

    Raises:
        ValueError: unknown; the message names the closest one.
    """
    if name not in _REGISTRY:
        load_installed()
    if name not in _REGISTRY:
        raise unknown_name("rpe", name, _REGISTRY)
    return _REGISTRY[name]


def encoding_options(name: str, *, deprecated: bool = False) -> dict[str, inspect.Parameter]:
    """The options of an encoding, by name, as parameters of its constructor (``.default``, and the type
    ``.annotation``).

    Args:
        deprecated: also those under an old name.
    """
    cls = encoding_class(name)
    hidden = frozenset() if deprecated else cls.deprecated_options
    parameters = inspect.signature(cls.__init__, eval_str=True).parameters
    return {key: value for key, value in parameters.items() if value.kind is value.KEYWORD_ONLY and key not in hidden}
