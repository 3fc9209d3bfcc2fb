"""What a person asks a picture for: layers, heads, an image, a query, pixels and names, each checked in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vit_rpe.checks import check_index, check_indices
from vit_rpe.viz.recording.query import Query, as_query
from vit_rpe.viz.recording.recording import Recording

__all__ = ["asked_of", "heads_of", "image_of", "layer_of", "layers_of", "names_of", "pixels_of"]

_BEYOND = 0.1
"""So far outside of 0..1 pixels may lie, as a bicubic resize leaves them; normalised images lie further."""


def layer_of(seen: Recording, layer: object) -> int:
    """The number of a layer, from 0 up. Raises ``ValueError`` where there is none."""
    return check_index("layer", layer, len(seen), "the recording", from_end=True)


def layers_of(seen: Recording, layers: object) -> list[int]:
    """The numbers of the layers, all for None. Raises ``ValueError`` for one that is none, or an empty list."""
    return check_indices("layer", layers, len(seen), "the recording", from_end=True)


def image_of(seen: Recording, image: object, what: str = "image") -> int:
    """The number of a recorded image. Raises ``ValueError`` where there is none."""
    return check_index(what, image, seen.num_images, "the recording")


def heads_of(seen: Recording, layers: Sequence[int], heads: object) -> list[list[int]]:
    """Which of the wanted heads every layer has; layers may differ in their number.

    Raises:
        ValueError: a head that none of the layers has.
    """
    numbers = [seen.heads(layer) for layer in layers]
    wanted = check_indices("head", heads, max(numbers), "the layer")
    return [[head for head in wanted if head < number] for number in numbers]


def asked_of(seen: Recording, layer: int, query: Any) -> Query:
    """What to ask a layer where a patch is asked for: layers that pool have queries of their own, and show these."""
    query = as_query(query)
    return "mean" if isinstance(query, tuple) and seen.pools(layer) else query


def pixels_of(seen: Recording, pixels: Any) -> Tensor:
    """The images as a person sees them.

    Raises:
        ValueError: they are no (B, 1 or 3, height, width) floats in 0..1, as many as were recorded.
    """
    expected = "pixels must be a tensor (B, 1 or 3, height, width) of floats in 0..1, as before normalisation"
    if not isinstance(pixels, Tensor):
        raise ValueError(f"{expected}, got {type(pixels).__name__}")
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3) or not pixels.numel() or not pixels.is_floating_point():
        raise ValueError(f"{expected}, got {tuple(pixels.shape)} of {pixels.dtype}")
    if len(pixels) != seen.num_images:
        raise ValueError(f"{len(pixels)} images of pixels do not fit a recording of {seen.num_images}")
    low, high = (float(end) for end in torch.aminmax(pixels.detach()))
    if not -_BEYOND <= low <= high <= 1 + _BEYOND:
        raise ValueError(f"{expected}, got values from {low:.3g} to {high:.3g}")
    return pixels


def names_of(given: Any, images: int, what: str = "names") -> list[str]:
    """One text for each image, their numbers for None. Raises ``ValueError`` for another number of them."""
    if given is None:
        return [str(index) for index in range(images)]
    try:
        found = None if isinstance(given, str) else [str(name) for name in given]
    except TypeError:
        found = None
    if found is None or len(found) != images:
        raise ValueError(f"{what} must be a list of one text for each of the {images} images, got {given!r}")
    return found
