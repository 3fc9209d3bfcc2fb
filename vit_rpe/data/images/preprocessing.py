"""The evaluation treatment of one image, small enough to travel in a checkpoint.

An image becomes eight-bit pixels (``pixels.py``), its centre is cut out and resized, and the result is
normalised per channel. The cut has the aspect ratio of ``img_size`` and ``crop_pct`` of the largest such box:
the usual "resize the short side, then crop the centre", in one step that never makes a large intermediate
image.

B batch, C channels, H and W the size the model takes.
"""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vit_rpe.checks import check_choice, check_count, check_type, plain
from vit_rpe.data.errors import bad_image, printable
from vit_rpe.data.images.config import INTERPOLATIONS
from vit_rpe.data.images.pixels import opened, to_mode, with_channels
from vit_rpe.data.treatment import Treatment

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Preprocessing", "centre_box", "image_treatment"]


@dataclass(frozen=True)
class Preprocessing:
    """What evaluation, prediction and plots do to an image; ``to_dict`` is JSON-able.

    ``img_size`` (height, width) in pixels; ``in_chans`` 1 or 3; ``mean`` and ``std`` one number per channel
    on the 0..1 scale; ``background`` (red, green, blue) 0..255 behind transparent pixels.
    """

    kind: ClassVar[str] = "images"
    size_name: ClassVar[str] = "img_size"
    shows_pictures: ClassVar[bool] = True

    img_size: tuple[int, int]
    in_chans: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float = 1.0
    interpolation: str = "bicubic"
    background: tuple[int, int, int] = (255, 255, 255)
    max_pixels: int = 89_478_485

    def __post_init__(self) -> None:
        for key, kind in (("img_size", tuple[int, int]), ("mean", tuple[float, ...]), ("std", tuple[float, ...])):
            object.__setattr__(self, key, plain(getattr(self, key)))
            check_type(key, getattr(self, key), kind)
        check_type("background", self.background, tuple[int, int, int])
        for side in self.img_size:
            check_count("each side of img_size", side)
        check_count("max_pixels", self.max_pixels)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        if not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct={self.crop_pct}, expected a share above 0, at most 1")
        if self.in_chans not in (1, 3):
            raise ValueError(f"in_chans={self.in_chans}, images are read with 1 or 3 channels")
        for key in ("mean", "std"):
            if len(getattr(self, key)) != self.in_chans:
                words = "1 number" if self.in_chans == 1 else f"{self.in_chans} numbers"
                raise ValueError(f"{key}={getattr(self, key)}, expected {words}, one per channel")
        if min(self.std) <= 0:
            raise ValueError(f"std={self.std}, expected numbers above 0")

    @property
    def unit(self) -> str:
        """What is counted, one label each."""
        return "images"

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self.img_size

    def model_args(self, num_classes: int) -> dict[str, Any]:
        """The arguments of the model that the data decide; its size and channels are its own."""
        return {"num_classes": num_classes}

    def resized(self, img_size: tuple[int, int]) -> Preprocessing:
        """The same for images of (height, width) ``img_size``."""
        return replace(self, img_size=(int(img_size[0]), int(img_size[1])))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Preprocessing:
        """Inverse of ``to_dict``; unknown and missing keys raise ``ValueError``."""
        if not isinstance(values, dict):
            raise ValueError(f"preprocessing must be a mapping, got {values!r}")
        known = [field.name for field in fields(cls)]
        for key in values:
            check_choice("preprocessing key", key, known)
        missing = [field.name for field in fields(cls) if field.default is MISSING and field.name not in values]
        if missing:
            raise ValueError(f"preprocessing lacks {', '.join(missing)}")
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(**given)

    def __call__(self, image: Image.Image | np.ndarray | str | Path) -> Tensor:
        """Image (or path, or uint8 array (h, w, channels)) to a normalised float tensor (C, H, W).

        Raises ``BadImageError``, with the path where there is one, for what cannot be read.
        """
        try:
            pixels = self.pixels(image)
        except Exception as error:  # decoders meet foreign bytes and raise almost anything
            name = printable(image) if isinstance(image, str | Path) else f"<{type(image).__name__}>"
            raise bad_image(name, error) from error
        return self.normalize(torch.from_numpy(pixels.transpose(2, 0, 1).copy()))

    def normalize(self, images: Tensor) -> Tensor:
        """uint8 (..., C, H, W) to float32 of the same shape, on the device the images are on.

        Raises:
            ValueError: floats, which would be on another scale, or another number of channels.
        """
        if not isinstance(images, Tensor) or images.is_floating_point() or images.shape[-3:-2] != (self.in_chans,):
            got = f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"images must be a tensor uint8 (..., {self.in_chans}, height, width), got {got}")
        mean = torch.tensor(self.mean, dtype=torch.float32, device=images.device).mul_(255).view(-1, 1, 1)
        scale = torch.tensor(self.std, dtype=torch.float32, device=images.device).mul_(255).reciprocal_().view(-1, 1, 1)
        return images.to(torch.float32).sub_(mean).mul_(scale)

    def denormalize(self, images: Tensor) -> Tensor:
        """float (..., C, H, W) back to 0..1 for display."""
        mean = torch.tensor(self.mean, dtype=images.dtype, device=images.device).view(-1, 1, 1)
        std = torch.tensor(self.std, dtype=images.dtype, device=images.device).view(-1, 1, 1)
        return (images * std + mean).clamp(0, 1)

    def pixels(self, image: Image.Image | np.ndarray | str | Path) -> np.ndarray:
        """Image to uint8 (H, W, C): colour treatment, centre cut, resize; no normalisation."""
        if isinstance(image, np.ndarray) and self._fits(image):
            return with_channels(image if image.ndim == 3 else image[:, :, None], self.in_chans)
        return self.resize(self.colour(image))

    def _fits(self, pixels: np.ndarray) -> bool:
        """Whether an array can do without Pillow: nothing to cut, resize or blend."""
        plain = pixels.dtype == np.uint8 and (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (1, 3)))
        return plain and pixels.shape[:2] == self.img_size and self.crop_pct == 1

    def colour(self, image: Image.Image | np.ndarray | str | Path) -> Image.Image:
        """Image to an upright eight-bit "L" or "RGB" Pillow image of its own size."""
        with opened(image, max_pixels=self.max_pixels) as source:
            return to_mode(source, channels=self.in_chans, background=self.background)

    def resize(self, image: Image.Image) -> np.ndarray:
        """ "L" or "RGB" Pillow image to uint8 (H, W, C): the centre cut and the resize."""
        from PIL import Image

        height, width = self.img_size
        box = centre_box((image.width, image.height), (width, height), self.crop_pct)
        resample = Image.Resampling[self.interpolation.upper()]
        out = np.asarray(image.resize((width, height), resample, box=box))
        return out if out.ndim == 3 else out[:, :, None]


def centre_box(size: tuple[int, int], target: tuple[int, int], crop_pct: float) -> tuple[float, float, float, float]:
    """The cut (left, top, right, bottom) of an image: ``crop_pct`` of the largest centred box with the shape of
    ``target``, and never outside of the image, which rounding would allow.

    Args:
        size, target: (width, height) of the image and of the result.
    """
    scale = crop_pct * min(size[0] / target[0], size[1] / target[1])
    margins = [max(0.0, (whole - scale * wanted) / 2) for whole, wanted in zip(size, target, strict=True)]
    return margins[0], margins[1], size[0] - margins[0], size[1] - margins[1]


def image_treatment(treatment: Treatment, what: str) -> Preprocessing:
    """``treatment`` itself. Raises ``ValueError`` where it is not of images; ``what`` names whose it is."""
    if not isinstance(treatment, Preprocessing):
        raise ValueError(f"{what} takes {treatment.kind}, not images")
    return treatment
