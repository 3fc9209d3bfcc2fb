"""Positions of changed models as constants, for deployment at one size: ``vit_rpe.freeze`` and ``vit_rpe.unfreeze``.

Legend: W windows of one image, H heads, N tokens of a window.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.encodings import FrozenPosition
from vit_rpe.models.backbone.position import once_for_all_layers
from vit_rpe.models.exchange.in_place.positioned import PositionedAttention, positioned_layers
from vit_rpe.models.exchange.parts import is_ours, name_of
from vit_rpe.models.families import around
from vit_rpe.precision import placement_of


def freeze(model: nn.Module) -> nn.Module:
    """Turn the positions of a model into constants of its native size, in place.

    What :func:`vit_rpe.replace_attention` or :func:`vit_rpe.add_rpe` changed has then one bias a layer, and where
    windows are shifted one bias and mask a window. Encodings that read content stay. Loading weights, ``train()``, a
    changed position parameter and another size raise until :func:`unfreeze`.

    Args:
        model: in evaluation mode; one of ours has a method of that name, which is called.

    Returns:
        The same object.

    Raises:
        ValueError: the model is in training mode, or has no position of ours.
    """
    if is_ours(model):
        _method(model, "freeze")()
        return model
    layers = _layers(model)
    if model.training:
        raise ValueError("only a model in evaluation mode can be frozen: call eval() first")
    unfreeze(model)
    frozen: dict[str, tuple[FrozenPosition, Tensor | None]] = {}
    for path, layer in layers.items():
        if not layer.rpe.card.content:
            queries, keys = layer.family.native_grids(layer, layer.place.facts)
            position = FrozenPosition(layer.rpe, keys, placement_of(layer).device, once_for_all_layers, queries=queries)
            visible = layer.family.native_visible(layer, around(model, path))
            frozen[path] = position, None if visible is None else _masked(position.terms.bias, visible, layer)
    for path, (position, bias) in frozen.items():
        layers[path].rpe, layers[path].masked_bias = position, bias
    return model


def unfreeze(model: nn.Module) -> nn.Module:
    """Undo :func:`freeze`; the same object."""
    if is_ours(model):
        _method(model, "unfreeze")()
        return model
    for layer in _layers(model).values():
        layer.masked_bias = None
        if isinstance(layer.rpe, FrozenPosition):
            layer.rpe = layer.rpe.original[0]
    return model


def _layers(model: nn.Module) -> dict[str, PositionedAttention]:
    layers = positioned_layers(model) if isinstance(model, nn.Module) else {}
    if not layers:
        raise ValueError(
            f"{name_of(model) if isinstance(model, nn.Module) else repr(model)} has no position of ours: "
            "call replace_attention or add_rpe first"
        )
    return layers


def _method(model: Any, name: str) -> Any:
    method = getattr(model, name, None)
    if method is None:
        raise ValueError(f"{name_of(model)} cannot be frozen")
    return method


def _masked(bias: Tensor | None, visible: Tensor, layer: Any) -> Tensor:
    """Bias (H or 1, N, N) and what is visible (W, N, N) in one, (W, H or 1, N, N)."""
    place = placement_of(layer)
    whole = torch.zeros(1, 1, 1, 1, device=place.device, dtype=place.dtype) if bias is None else bias[None]
    shape = (visible.shape[0], whole.shape[1], *visible.shape[1:])
    return whole.expand(shape).masked_fill(~visible[:, None], float("-inf"))
