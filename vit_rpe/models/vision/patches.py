"""Patches as timm cuts them, with size checks that leave symbolic sizes symbolic.

timm's layer writes the size into a message before it checks it, which makes every new size a new compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import PatchEmbed, to_2tuple
from timm.models.vision_transformer_hybrid import ConvStem
from torch import Tensor

Size = int | tuple[int, int]


def patch_grid(img_size: tuple[int, int], patch_size: tuple[int, int], *, padded: bool) -> tuple[int, int]:
    """Patches along height and width of an image; a patch that is not whole counts where the image is ``padded``."""
    height, width = img_size
    rows, columns = patch_size
    return (-(-height // rows), -(-width // columns)) if padded else (height // rows, width // columns)


torch.fx.wrap("whole_patches")


class Patches(PatchEmbed):
    """timm's ``PatchEmbed`` by all its names and options; gives (B, height, width, C)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.in_chans = self.proj.in_channels
        self._count_patches()

    def set_input_size(self, img_size: Size | None = None, patch_size: Size | None = None) -> None:
        """Another native resolution; the kernel is resampled for another patch."""
        super().set_input_size(img_size=img_size, patch_size=patch_size)
        self._count_patches()

    def _count_patches(self) -> None:
        # timm's own number leaves out the patch that padding makes whole, which its forward gives all the same
        self.grid_size = patch_grid(self.img_size, self.patch_size, padded=self.dynamic_img_pad)
        self.num_patches = prod(self.grid_size)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to (B, H / patch, W / patch, C).

        Raises:
            ValueError: see :func:`whole_patches`.
        """
        channels = getattr(self.proj, "in_channels", self.in_chans)  # an adapter around it may have no such number
        x = whole_patches(x, channels, self.img_size, self.patch_size, self.strict_img_size, self.dynamic_img_pad)
        return self.norm(self.proj(x).permute(0, 2, 3, 1))


class ConvPatches(Patches):
    """Patches by a few 3x3 convolutions of stride 2 instead of one that does not overlap (timm's ``ConvStem``).

    Takes what :class:`Patches` takes; the patch stays what it is. It sees across the edges of patches, which trains
    faster and more steadily (Xiao et al. 2021, "Early Convolutions Help Transformers See Better").

    Raises:
        ValueError: a patch that is not square, or not a power of two from 4 on.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows, columns = self.patch_size
        depth = rows.bit_length() - 1
        if rows != columns or rows != 2**depth or depth < 2:
            raise ValueError(
                f"embed_layer='conv' halves an image in every layer: patch_size is 4, 8, 16 ..., not {self.patch_size}"
            )
        factory: dict[str, Any] = {"device": kwargs.get("device"), "dtype": kwargs.get("dtype")}
        stem: Any = partial(ConvStem, stride=(2,) * depth)  # timm's annotation knows three strides only
        self.proj = stem(self.in_chans, depth, self.proj.out_channels, **factory)

    def set_input_size(self, img_size: Size | None = None, patch_size: Size | None = None) -> None:
        """Another native resolution.

        Raises:
            ValueError: another patch.
        """
        if patch_size is not None and to_2tuple(patch_size) != tuple(self.patch_size):
            raise ValueError(
                f"a stem of convolutions keeps its patch of {self.patch_size}, got patch_size={patch_size}"
            )
        super().set_input_size(img_size=img_size)


EMBEDS: dict[str, Callable[..., Any]] = {"patch": Patches, "conv": ConvPatches}
"""What cuts an image into patches, by the name a model's ``embed_layer`` takes."""


def whole_patches(
    x: Tensor, channels: int, img_size: tuple[int, int], patch_size: tuple[int, int], strict: bool, padded: bool
) -> Tensor:
    """Images (B, in_chans, H, W), padded with zeros to whole patches where asked for.

    Raises:
        ValueError: no images of that many channels of floats, another size than the native one where that is
            ``strict``, or sides that are not whole patches and not to be ``padded``.
    """
    if not isinstance(x, Tensor):
        raise ValueError(f"the model takes images as a tensor (B, {channels}, H, W), got a {type(x).__name__}")
    if not x.is_floating_point():
        raise ValueError(f"the model takes normalised images of floats, got {x.dtype}")
    if x.ndim != 4 or x.shape[1] != channels:
        raise ValueError(f"the model takes images (B, {channels}, H, W), got shape {tuple(x.shape)}")
    height, width = x.shape[-2:]
    rows, columns = patch_size
    if strict and (height != img_size[0] or width != img_size[1]):
        raise ValueError(
            f"the model is for images of {tuple(img_size)} pixels, got {(int(height), int(width))}: create it "
            "with img_size=... or dynamic_img_size=True, or call set_input_size"
        )
    if padded:
        return F.pad(x, (0, -width % columns, 0, -height % rows))
    if height % rows != 0 or width % columns != 0:
        raise ValueError(
            f"image height and width must be divisible by the patch {(rows, columns)}, got {(int(height), int(width))}"
        )
    return x
