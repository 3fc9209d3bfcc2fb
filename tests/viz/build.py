"""Small models whose positions matter: never square, prefix tokens, parameters drawn large."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.encodings import PositionEncoding
from vit_rpe.models import VisionTransformer

CHANNELS, HEIGHT, WIDTH, PATCH = 1, 12, 20, 4
GRID = (3, 5)
HEADS, DEPTH = 3, 4


def vision_model(rpe: Any = "bias", **options: Any) -> VisionTransformer:
    """Grid 3 x 5, one channel, a class token and four registers unless ``options`` say otherwise."""
    given = {
        "img_size": (HEIGHT, WIDTH),
        "patch_size": PATCH,
        "in_chans": CHANNELS,
        "num_classes": 7,
        "embed_dim": 24,
        "depth": DEPTH,
        "num_heads": HEADS,
        "class_token": True,
        "reg_tokens": 4,
        "rpe": rpe,
    }
    model = VisionTransformer(**{**given, **options}).eval()
    draw_large(model)
    return model


def draw_large(model: nn.Module) -> None:
    """Every parameter anew, so that content, position and values all differ visibly between tokens."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(std=2 / module.in_features**0.5)
                if module.bias is not None:
                    module.bias.normal_(std=0.3)
        for module in model.modules():
            if isinstance(module, PositionEncoding):
                for parameter in module.parameters():
                    parameter.normal_(std=0.7)


def images(batch: int = 2) -> Tensor:
    return torch.randn(batch, CHANNELS, HEIGHT, WIDTH)
