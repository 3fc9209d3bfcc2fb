"""What a model needs done to its inputs: one interface, of images (``Preprocessing``) and of text (``TextTreatment``).

B batch, C channels, H and W pixels, L tokens.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol

from torch import Tensor

__all__ = ["Request", "Treatment"]


class Treatment(Protocol):
    """From a batch of a loader to what the model takes; small enough to travel in a checkpoint."""

    kind: ClassVar[str]
    """What goes into the model: ``"images"`` or ``"text"``."""
    size_name: ClassVar[str]
    """The option that sets the size: ``"img_size"`` or ``"length"``."""
    shows_pictures: ClassVar[bool]
    """Whether a sample can be looked at as a picture, by ``denormalize``."""

    @property
    def unit(self) -> str:
        """What is counted, one label each: ``"images"``, ``"passages"`` or ``"characters"``."""

    @property
    def size(self) -> tuple[int, ...]:
        """(H, W) or (L,)."""

    def model_args(self, num_classes: int) -> dict[str, Any]:
        """The arguments of the model that the data decide."""

    def normalize(self, inputs: Tensor) -> Tensor:
        """A batch as a loader gives it to what the model takes, on the device it is on."""

    def resized(self, img_size: tuple[int, int]) -> Treatment:
        """The same for images of another size. Raises ``ValueError`` where there is no image size."""

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings."""


class Request(NamedTuple):
    """What is asked of a data set beside its own options.

    ``seed``: of training. For a new model of images, ``img_size`` (height, width) and ``in_chans``; for a trained
    model of any kind, its ``treatment``.
    """

    seed: int
    img_size: tuple[int, int] | None = None
    in_chans: int | None = None
    treatment: Treatment | None = None
