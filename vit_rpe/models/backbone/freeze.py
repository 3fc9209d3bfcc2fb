"""Freezing the positions of a model: every encoding becomes constants, and comes back."""

from __future__ import annotations

from torch import nn

from vit_rpe.encodings import FrozenPosition, PositionEncoding
from vit_rpe.models.backbone.position import once_for_all_layers
from vit_rpe.position.geometry import Device, TokenGrid


def freeze_positions(model: nn.Module, grid: TokenGrid, device: Device) -> None:
    """Replace every encoding called ``rpe`` inside ``model`` by its constants; those that read content stay.

    Raises:
        ValueError: the model is in training mode.
    """
    if model.training:
        raise ValueError("only a model in evaluation mode can be frozen: call eval() first")
    unfreeze_positions(model)
    for module in list(model.modules()):
        position = getattr(module, "rpe", None)
        if isinstance(position, PositionEncoding) and not position.card.content:
            module.rpe = FrozenPosition(position, grid, device, once_for_all_layers)


def unfreeze_positions(model: nn.Module) -> None:
    """Bring every encoding back."""
    for module in list(model.modules()):
        position = getattr(module, "rpe", None)
        if isinstance(position, FrozenPosition):
            module.rpe = position.original[0]
