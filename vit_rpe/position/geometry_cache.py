"""Geometry that the layers of one forward share.

Indices and coordinates depend on the grids only, and every layer of a model asks for the same ones. Within
:func:`sharing`, which a model opens for one forward, each is computed once and handed out again; outside, and under
compile, export and trace, it is computed on every call. Nothing outlives the forward.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

ROOM = 2**25
"""Bytes that one forward keeps; what does not fit any more is computed again."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Store:
    """What one forward has computed, while there is room."""

    def __init__(self) -> None:
        self.results: dict[Hashable, Any] = {}
        self.room = ROOM

    def keep(self, key: Hashable, result: Any) -> None:
        """Hold a tensor, or a tuple of tensors and numbers."""
        size = _bytes(result)
        if size <= self.room:
            self.room -= size
            self.results[key] = result


_store: ContextVar[Store | None] = ContextVar("store", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Within it functions marked :func:`once_per_forward` compute each result once."""
    if torch.compiler.is_compiling():
        yield
        return
    token = _store.set(Store())
    try:
        yield
    finally:
        _store.reset(token)


def is_plain() -> bool:
    """Whether operations simply run, so that hand-written ones may take their place: they are not compiled, exported,
    traced, transformed by ``torch.func`` or differentiated in forward mode."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return not is_transformed()


def is_transformed() -> bool:
    """Whether ``torch.func`` or forward mode is at work: only operations that torch itself differentiates will do."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def open_store() -> Store | None:
    """The store of the forward that is under way; None where there is none, or operations do not simply run."""
    return _store.get() if is_plain() else None


def once_per_forward(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorator for a function of geometry, whose result nobody changes: a tensor, or a tuple of tensors and numbers.

    Its arguments are hashable, tensors count by identity. What carries a gradient is computed on every call, and what
    was computed without one is not handed out where gradients are recorded.
    """

    @wraps(function)
    def shared(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        store = open_store()
        if store is None:
            return function(*args, **kwargs)
        key = (function, torch.is_grad_enabled(), args, tuple(kwargs.items()))
        if key in store.results:
            return store.results[key]
        result = function(*args, **kwargs)
        if not _has_gradient(result):
            store.keep(key, result)
        return result

    return shared


def _has_gradient(result: Any) -> bool:
    if isinstance(result, tuple):
        return any(map(_has_gradient, result))
    return isinstance(result, Tensor) and result.requires_grad


def _bytes(result: Any) -> int:
    if isinstance(result, Tensor):
        return result.numel() * result.element_size()
    return sum(map(_bytes, result)) if isinstance(result, tuple) else 0
