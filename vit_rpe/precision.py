"""What is asked of any module, whatever stands in place of its layers: where it is, how precisely it computes, whether
weights are computed from others; and switching autocast off where low precision would be wrong."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

Module = TypeVar("Module", bound=nn.Module)


class Placement(NamedTuple):
    """Device and floating point type that new parts of a module are given."""

    device: torch.device
    dtype: torch.dtype


def placement_of(module: nn.Module, device: torch.device | str | None = None) -> Placement:
    """Where the parts of a module are, and in which precision it computes.

    The first parameter, else the first buffer, that computes by itself tells: of 16 bits at least. Packed weights of
    quantised layers are integers, or no tensors of the module at all.

    Args:
        device: the answer for a module without tensors; default: torch's.
    """
    first: Tensor | None = None
    for each in chain(module.parameters(), module.buffers()):
        if each.is_floating_point() and each.dtype.itemsize > 1:
            return Placement(each.device, each.dtype)
        first = each if first is None else first
    if first is not None:
        return Placement(first.device, torch.get_default_dtype())
    return Placement(torch.get_default_device() if device is None else torch.device(device), torch.get_default_dtype())


def is_computed(module: nn.Module) -> bool:
    """Whether a parameter of a module is computed from others: parametrised, pruned, with its norm apart."""
    return parametrize.is_parametrized(module) or any(isinstance(value, Tensor) for value in vars(module).values())


def copied(module: Module) -> Module:
    """A copy of a module, also where pruning and the like compute a weight in every forward, which torch refuses."""
    parts = (value for part in module.modules() for value in vars(part).values())
    computed = [value for value in parts if isinstance(value, Tensor) and not value.is_leaf]
    return copy.deepcopy(module, {id(value): value.detach().clone() for value in computed})


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A context without autocast on this device; the meta device has none to switch off."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
