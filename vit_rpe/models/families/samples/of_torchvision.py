"""Small models of torchvision, random and large."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import MaxVit, SwinTransformer, VisionTransformer
from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformerBlockV2

from vit_rpe.models.families.samples.of_timm import randomize

SWIN: dict[str, Any] = {"patch_size": [2, 2], "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 3], "num_classes": 5}
CASES: dict[str, tuple[Any, tuple[int, int]]] = {
    "vit": (partial(VisionTransformer, 16, 4, 2, 3, 24, 32, num_classes=5), (16, 16)),
    "swin": (partial(SwinTransformer, window_size=[3, 4], **SWIN), (20, 28)),
    "swin-narrow": (partial(SwinTransformer, window_size=[3, 4], **SWIN), (20, 8)),
    "swinv2": (
        partial(
            SwinTransformer, window_size=[3, 4], block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2, **SWIN
        ),
        (20, 28),
    ),
    "maxvit": (partial(MaxVit, (48, 48), 8, 3, [12, 24], [1, 1], 6, 0.0, num_classes=5), (48, 48)),
}
"""How a model is made, and the size of an image."""


def build(case: str) -> nn.Module:
    """The model of a case, randomised, in evaluation mode."""
    torch.manual_seed(0)
    model: nn.Module = CASES[case][0]()
    return randomize(model).eval()


def image(case: str) -> Tensor:
    """Two random images of the case's size."""
    return torch.randn(2, 3, *CASES[case][1], generator=torch.Generator().manual_seed(1))
