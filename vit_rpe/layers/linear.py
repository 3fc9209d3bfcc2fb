"""Which linear layers are nothing but their weight and bias."""

from __future__ import annotations

from typing import TypeGuard

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_bare(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether calling the layer is exactly ``F.linear`` with its weight and bias, so that a part of these will do.

    Adapters, parametrised and quantised layers are of another class; hooks and a replaced ``forward`` are on the layer;
    quantised and sharded weights are tensors of another class.
    """
    if type(layer) is not nn.Linear or "forward" in vars(layer) or _has_any_global_hook():
        return False
    return type(layer.weight) in (Tensor, nn.Parameter) and not any(getattr(layer, hooks) for hooks in HOOKS)
