"""Patches as timm cuts them, with size checks that leave symbolic sizes symbolic.

timm's layer writes the size into a message before it checks it, which makes every new size a new compilation.
"""

from __future__ import annotations

import torch.nn.functional as F
from timm.layers import PatchEmbed
from timm.models import register_notrace_module
from torch import Tensor


@register_notrace_module
class Patches(PatchEmbed):
    """timm's ``PatchEmbed`` by all its names and options; gives (B, height, width, C)."""

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to (B, H / patch, W / patch, C).

        Raises:
            ValueError: no images of that many channels, another size than the native one, or sides that are not whole
                patches, where that is asked for.
        """
        channels = self.proj.in_channels
        if x.ndim != 4 or x.shape[1] != channels:
            raise ValueError(f"the model takes images (B, {channels}, H, W), got shape {tuple(x.shape)}")
        height, width = x.shape[-2:]
        rows, columns = self.patch_size
        if self.strict_img_size and (height != self.img_size[0] or width != self.img_size[1]):
            raise ValueError(
                f"the model is for images of {tuple(self.img_size)} pixels, got {(int(height), int(width))}: create it "
                "with img_size=... or dynamic_img_size=True, or call set_input_size"
            )
        if self.dynamic_img_pad:
            x = F.pad(x, (0, -width % columns, 0, -height % rows))
        elif height % rows != 0 or width % columns != 0:
            raise ValueError(
                f"image height and width must be divisible by the patch {(rows, columns)}, got "
                f"{(int(height), int(width))}"
            )
        return self.norm(self.proj(x).permute(0, 2, 3, 1))
