"""The inputs of attention layers: by name, kept, moved to a device, and with every token replaced by a mean.

Legend: B samples, W windows of one image, C channels.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.layers import AttentionLayer
from vit_rpe.layers.kv_cache import LayerCache
from vit_rpe.precision import copied, placement_of

Device = torch.device | str | None


def arguments_of(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What the forward of an attention layer is given, by name."""
    if isinstance(module, AttentionLayer):
        return module.arguments(args, kwargs)
    return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)


def detached(value: Any, device: Device) -> Any:
    if isinstance(value, LayerCache):  # it grows by new tensors, so the old ones can be kept
        return copy.copy(value)
    return value.detach().to(device, copy=True) if isinstance(value, Tensor) else value


def mean_tokens(x: Tensor, over: str, windows: int, channels: int) -> Tensor:
    """Every token of (B W, ..., C) replaced by the mean over its image's tokens, or over all images, then one.

    Args:
        windows: W of one image.
        channels: the axis of C.
    """
    tokens = x.movedim(channels, -1)
    images = tokens.reshape(tokens.shape[0] // windows, -1, tokens.shape[-1])
    mean = images.mean(dim=1)
    if over == "batch":
        mean = mean.mean(dim=0, keepdim=True)
    mean = mean.repeat_interleave(windows, dim=0).view(-1, *(1,) * (tokens.ndim - 2), tokens.shape[-1])
    return mean.expand(-1, *tokens.shape[1:]).movedim(-1, channels)


def on_device(module: nn.Module, device: torch.device | str) -> nn.Module:
    """The module itself where it is on ``device`` already, else a copy there."""
    if placement_of(module, device).device == torch.device(device):
        return module
    return copied(module).to(device)


def moved(value: Any, device: torch.device | str) -> Any:
    """Tensors to ``device``, also those inside (named) tuples."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        parts = [moved(part, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
