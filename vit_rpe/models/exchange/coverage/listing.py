"""Which of timm's pretrained files have an attention with a relative or rotary position.

The list is made from the built architectures, never from their names, so that it follows the installed timm.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import timm
import torch
from timm.models import model_entrypoint
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

TABLES = re.compile(
    r"^(relative_position_bias_table|attention_biases|rel_pos_[hw]|relative_coords_table|rel_coords_log"
    r"|relative_coordinates_log)$"
)
"""Parameters and buffers that say how far two tokens are apart: tables over offsets, and the offsets that an MLP reads.
"""
ROTARY = re.compile(r"^(RotaryEmbedding|Gemma4RotaryEmbedding)")
"""Classes of timm that turn queries and keys."""
MENTIONS = re.compile(r"relative_position|attention_biases|rel_pos|Rel_?Pos|Rotary|rope_embed")
"""What the source of a module with such models mentions; the others need not be built."""


def has_relative_position(model: nn.Module) -> bool:
    """Whether some attention of a model has a relative or rotary position."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return any(TABLES.match(name.rpartition(".")[2]) for name, _ in tensors) or any(
        ROTARY.match(type(module).__name__) for module in model.modules()
    )


@cache
def architectures() -> dict[str, tuple[str, ...]]:
    """timm's architectures with such an attention, each with the tags of its pretrained files.

    Those that share a source file mentioning such a position are built on the meta device; this takes a minute.
    """
    tags: dict[str, list[str]] = {}
    for full in timm.list_pretrained():
        name, _, tag = full.partition(".")
        if may_have_position(name):
            tags.setdefault(name, []).append(tag)
    return {name: tuple(files) for name, files in tags.items() if has_relative_position(on_meta(name))}


def files() -> Iterator[str]:
    """The full names, ``"architecture.tag"``, of :func:`architectures`."""
    for name, tags in architectures().items():
        for tag in tags:
            yield f"{name}.{tag}" if tag else name


def on_meta(name: str, **changes: Any) -> nn.Module:
    """One of timm's architectures without memory for its weights."""
    with torch.device("meta"), not_drawn():
        model: nn.Module = timm.create_model(name, **changes)
    return model


class _NotDrawn(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in DRAWING:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


DRAWING = frozenset(
    (
        *(Tensor.uniform_, Tensor.normal_, Tensor.erfinv_, Tensor.clamp_),
        *(nn.init.uniform_, nn.init.normal_, nn.init.trunc_normal_),
        *(nn.init.kaiming_uniform_, nn.init.kaiming_normal_, nn.init.xavier_uniform_, nn.init.xavier_normal_),
    )
)
"""What initialisations draw weights with: most of the time that building a model takes."""


def not_drawn() -> TorchFunctionMode:
    """Within it weights that are drawn at random are left as they come, for models whose weights do not matter."""
    return _NotDrawn()


def may_have_position(name: str) -> bool:
    """Whether the source file of an architecture mentions such a position at all."""
    return _mentioned(model_entrypoint(name).__module__)


@cache
def _mentioned(module: str) -> bool:
    return MENTIONS.search(inspect.getsource(sys.modules[module])) is not None
