"""What a person wants to know of an encoding before choosing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vit_rpe.checks import warn_renamed

RENAMED = {"elsewhere": "extrapolation", "decodes": "supports_kv_cache"}
"""Old names of fields, for one release."""


@dataclass(frozen=True)
class _Fields:
    paper: str
    adds: tuple[str, ...]
    extrapolation: str
    axes: tuple[int, ...] = (1, 2, 3)
    supports_kv_cache: bool = True
    additive: bool = True
    per_pair: bool = False
    content: bool = False


class Card(_Fields):
    """Paper, what it adds, and what it can do.

    Attributes:
        paper: title and arXiv id.
        adds: the fields of PositionTerms it fills.
        extrapolation: what happens at an offset or grid the parameters were not made for.
        axes: numbers of axes it is defined for.
        supports_kv_cache: works with a key/value cache, one query at a time.
        additive: adds to the logits only, so that at ``zero_()`` the attention is that of no position.
        per_pair: the terms have an entry for every pair of tokens, so that on a large grid they are asked for one
            window of queries at a time.
        content: the terms depend on what the tokens hold: ``forward(q, k, device, x=..., x_k=...)`` is given the
            layer's input, and they belong to that layer and call, are never shared or frozen.
    """

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **{_new_name(name): value for name, value in fields.items()})

    def __getattr__(self, name: str) -> Any:
        if name not in RENAMED:
            raise AttributeError(f"a Card has no {name!r}")
        return getattr(self, _new_name(name))


def _new_name(name: str) -> str:
    if name not in RENAMED:
        return name
    warn_renamed(f"Card.{name}", RENAMED[name], stacklevel=4)
    return RENAMED[name]
