"""What ``visualize`` and ``explore`` know of the model they look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vit_rpe.data import Treatment

__all__ = ["NamedModel", "told_of_size"]


@dataclass
class NamedModel:
    """A model in eval mode on its device, and what is known of it.

    ``treatment`` prepares its inputs; ``class_names`` is None where classes have no names; ``data`` are the options of
    the data it was trained on, empty where they are not known.
    """

    model: nn.Module
    treatment: Treatment
    title: str
    class_names: list[str] | None
    device: torch.device
    data: dict[str, Any] = field(default_factory=dict)


@contextmanager
def told_of_size(named: NamedModel) -> Iterator[None]:
    """What a model asserts of its input, as a ValueError with the size of the images."""
    try:
        yield
    except AssertionError as error:
        size = " x ".join(map(str, getattr(named.treatment, "img_size", ())))
        raise ValueError(f"{named.title} does not take images of {size} pixels: {error}") from error
