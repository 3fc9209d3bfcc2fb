"""The patch embedding and the prefix tokens of models that do not name them as timm does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from torch import Tensor, nn

from vit_rpe.layers.linear import steps_of
from vit_rpe.position.geometry import TokenGrid

PREFIX_TOKENS = ("cls_token", "class_embedding", "class_token", "distillation_token", "register_tokens")
"""Parameters of an embedding that stand before the patches, (1, tokens, C) or (C,); the first three are one thing."""
PATCHES = ("patch_embeddings", "patch_embedding", "conv_proj")


def embeddings_of(around: Sequence[nn.Module]) -> Any:
    """The module called ``embeddings`` of a model around a layer; None where there is none."""
    return next((each for module in around if (each := getattr(module, "embeddings", None)) is not None), None)


def prefix_facts(holder: Any) -> Mapping[str, Any]:
    """How many prefix tokens a module puts before the patches, and whether a class token is among them."""
    found = [getattr(holder, name, None) for name in PREFIX_TOKENS]
    return {
        "num_prefix": sum(1 if each.ndim == 1 else each.shape[1] for each in found if each is not None),
        "class_token": any(each is not None for each in found[:3]),
    }


def patch_convolution(holder: Any) -> nn.Module | None:
    """The convolution that makes patches, or what stands in its place; None where a model reads no image, or makes them
    otherwise."""
    patches = next((each for name in PATCHES if (each := getattr(holder, name, None)) is not None), None)
    patches = getattr(patches, "projection", patches)
    inside = [] if patches is None else patches.modules()
    return patches if any(isinstance(each, nn.Conv2d) for each in inside) else None


def patches_of(convolution: nn.Module, x: Tensor) -> tuple[int, ...]:
    """Patches per axis that an unpadded convolution makes of x (B, C, height, width)."""
    sides = zip(x.shape[-2:], *steps_of(convolution)[:2], strict=True)
    return tuple((side - kernel) // stride + 1 for side, kernel, stride in sides)


def grid_of_coordinates(coordinates: Tensor) -> tuple[int, ...] | None:
    """The grid of patches whose places (B, N, n) are told; None unless all samples fill it in raster order."""
    size = tuple(int(side) for side in coordinates[0].amax(dim=0) + 1)
    if prod(size) != coordinates.shape[1]:
        return None
    whole = TokenGrid(size).positions(coordinates.device)
    return size if bool((coordinates == whole).all()) else None
