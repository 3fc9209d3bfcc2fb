"""Which family an attention layer belongs to: a question of its class, never of a shape."""

from __future__ import annotations

import re

from torch import nn

from vit_rpe.models.families._interface import Family
from vit_rpe.models.families.maxvit import CoAtNet, MaxViT
from vit_rpe.models.families.plain_vit import PlainViT
from vit_rpe.models.families.sam import SegmentAnything
from vit_rpe.models.families.swin import Swin, SwinV2, SwinV2Cr

_FAMILIES: dict[type[nn.Module], Family] = {}


def register(family: Family) -> None:
    """Make a family known.

    Raises:
        ValueError: one of its classes is described already.
    """
    for kind in family.layers:
        if kind in _FAMILIES:
            raise ValueError(f"{kind.__name__} is described by {type(_FAMILIES[kind]).__name__} already")
    _FAMILIES.update(dict.fromkeys(family.layers, family))


def is_described(layer: nn.Module) -> bool:
    """Whether a module is an attention layer of a known family."""
    return type(layer) in _FAMILIES


def family_of(layer: nn.Module) -> Family:
    """The family of an attention layer.

    Raises:
        ValueError: a class that no family describes.
    """
    if not is_described(layer):
        known = ", ".join(sorted(f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}" for kind in _FAMILIES))
        raise ValueError(
            f"no family describes attention of type {type(layer).__module__}.{type(layer).__name__} (known: {known}): "
            "describe it by a subclass of vit_rpe.models.families.Family and vit_rpe.models.families.register"
        )
    return _FAMILIES[type(layer)]


ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
"""What the classes of attention are called."""
AROUND = re.compile(r"Pool|Block|Partition|Stage|Sequential")
"""What is called so as well: what attention stands in, and poolings behind the blocks, which stay as they are."""


def require_described(model: nn.Module) -> None:
    """Raise ValueError, naming the class, where a model has an attention that no family describes."""
    for module in model.modules():
        name = type(module).__name__
        if not is_described(module) and ATTENTION.search(name) and not AROUND.search(name):
            family_of(module)


for _family in (PlainViT(), Swin(), SwinV2(), SwinV2Cr(), SegmentAnything(), MaxViT(), CoAtNet()):
    register(_family)
