"""Keeping the size of the image in hand where attention layers are: one hook a watched module."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import has_side_effect
from torch.utils.hooks import RemovableHandle

from vit_rpe.models.families._interface import Family, Place
from vit_rpe.models.families._registry import family_of

MODELS = ("timm", "torchvision", "transformers")
"""Packages of models, whose attention stands in blocks of theirs."""


@has_side_effect
def note_image(module: nn.Module, *args: Tensor) -> None:
    """Do what the hooks that watch ``module`` do: the one step of a traced graph that stands for them."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, Watch):
            hook(module, args, {})


torch.fx.wrap("note_image")


class Watch:
    """A hook before the forward of a module: the layers it serves learn the size of the image."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.places: list[Place] = []

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs:
            given = inspect.signature(module.forward).bind(*args, **kwargs)
            given.apply_defaults()
            args = given.args
        if any(isinstance(each, torch.fx.Proxy) for each in args):  # an FX tracer goes through the module
            note_image(module, *args)
            return
        image = self.family.image_of(module, args)
        for place in self.places:
            place.image = image


def place_layers(model: nn.Module, layers: Mapping[str, nn.Module]) -> tuple[dict[str, Place], list[RemovableHandle]]:
    """The place of every layer in ``model``, and the hooks that keep their images right.

    Args:
        layers: attention layers of known families by their names in ``model``.

    Raises:
        ValueError: a layer that no family describes.
    """
    places: dict[str, Place] = {}
    watches: dict[tuple[nn.Module, Family], Watch] = {}
    for path, layer in layers.items():
        family, holders = family_of(layer), around(model, path)
        places[path] = Place(family.facts(layer, holders))
        watched = family.watched(layer, holders)
        if watched is not None:
            watches.setdefault((watched, family), Watch(family)).places.append(places[path])
    return places, [
        watched.register_forward_pre_hook(watch, with_kwargs=True) for (watched, _), watch in watches.items()
    ]


def around(model: nn.Module, path: str) -> list[nn.Module]:
    """The modules that hold the attention at ``path``, innermost first; of the package that has its class, where that
    is one of models, so that what users put around an attention or a block is not taken for the block."""
    holders = [model]
    for part in path.split(".")[:-1]:
        holders.append(holders[-1].get_submodule(part))
    kind = family_of(model.get_submodule(path)).layers[0]
    package = _package(kind if isinstance(kind, str) else kind.__module__)
    if package in MODELS:
        holders = [each for each in holders if any(_package(base.__module__) == package for base in type(each).__mro__)]
    return holders[::-1]


def _package(name: str) -> str:
    return name.partition(".")[0]
