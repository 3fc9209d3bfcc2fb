"""What is asked of any module, whatever stands in place of its layers: where it is, how precisely it computes, whether
weights are computed from others, whether a linear layer is nothing but its weight and bias; and switching autocast off
where low precision would be wrong."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import NamedTuple, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.nn.utils import parametrize

Module = TypeVar("Module", bound=nn.Module)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


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


def is_bare(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether calling the layer is exactly ``F.linear`` with its weight and bias, so that a part of these will do.

    Adapters, parametrised and quantised layers are of another class; hooks and a replaced ``forward`` are on the layer;
    quantised and sharded weights are tensors of another class.
    """
    if type(layer) is not nn.Linear or _has_any_global_hook() or is_hooked(layer):
        return False
    return type(layer.weight) in (Tensor, nn.Parameter)


def is_hooked(module: nn.Module) -> bool:
    """Whether calling a module does more than its class says: hooks, or a replaced ``forward``."""
    return "forward" in vars(module) or any(getattr(module, hooks) for hooks in HOOKS)


def copied(module: Module) -> Module:
    """A copy of a module, also where pruning and the like compute a weight in every forward, which torch refuses."""
    parts = (value for part in module.modules() for value in vars(part).values())
    computed = [value for value in parts if isinstance(value, Tensor) and not value.is_leaf]
    return copy.deepcopy(module, {id(value): value.detach().clone() for value in computed})


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A context without autocast on this device; the meta device has none to switch off."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
