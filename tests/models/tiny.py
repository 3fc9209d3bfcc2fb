"""Small models and large random weights for the tests of models."""

from __future__ import annotations

from typing import Any

import timm
import torch
from torch import nn

import vit_rpe
from vit_rpe.models.exchange import PUBLIC, public_name

SIZE = (8, 12)
"""Image height and width of the tiny models: never square."""

OWN = tuple(name for name in timm.list_models("vit_rpe_nano_patch2_*"))
"""One entry point for every encoding, and the plain one."""

NAMES = tuple(timm.list_models(module="vit_rpe"))
"""Every entry point of our own vision transformer."""

PUBLIC_NAMES = tuple(sorted({public_name(name) for name in PUBLIC}))


def tiny(name: str = "vit_rpe_custom", **kwargs: Any) -> nn.Module:
    """An entry point at depth 2, width 24 and 3 heads on a 4 x 6 grid of 2-pixel patches."""
    base: dict[str, Any] = {
        "img_size": SIZE,
        "patch_size": 2,
        "embed_dim": 24,
        "depth": 2,
        "num_heads": 3,
        "num_classes": 5,
        "mlp_ratio": 2,
    }
    return timm.create_model(name, **{**base, **kwargs})


def images(size: tuple[int, int] = SIZE, batch: int = 3) -> torch.Tensor:
    return torch.randn(batch, 3, *size)


def randomize(model: nn.Module, spread: float = 0.3) -> nn.Module:
    """Every parameter from N(0, spread^2), so that nothing is zero or one by chance; evaluation mode."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * spread)
    return model.eval()


def additive_encodings() -> list[str]:
    """Encodings that can start at zero beside a class token."""
    grid = vit_rpe.TokenGrid((2, 3), num_prefix=1)
    found = []
    for name in vit_rpe.list_encodings():
        try:
            vit_rpe.create_encoding(name, 3, 8, grid).zero_()
        except ValueError:
            continue
        found.append(name)
    return found
