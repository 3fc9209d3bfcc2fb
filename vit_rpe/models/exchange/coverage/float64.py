"""Arithmetic in float64 throughout, for comparing formulas.

timm and this package compute angles and the inputs of position networks in float32, whatever the dtype of the model,
and each in an order of its own: in a model of float64 they differ by roundings of float32. Here both round in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@contextmanager
def in_float64() -> Iterator[None]:
    """Within it whoever asks torch for float32 gets float64; models are built, converted and run in it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widened():
            yield
    finally:
        torch.set_default_dtype(before)


class _Widened(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        wide = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return (Tensor.double if func is Tensor.float else func)(*map(_wide, args), **wide)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
