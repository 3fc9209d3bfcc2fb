"""What a published file says of its model: arguments and shapes read off the tensors.

Legend: C channels, H heads, P patches, L layers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from vit_rpe.encodings import Spec
from vit_rpe.models.backbone.loading import Grid
from vit_rpe.models.exchange.describe import Description
from vit_rpe.models.exchange.parts import ratio_of
from vit_rpe.models.exchange.positions import Layout
from vit_rpe.models.exchange.weights import Placed, Weights, rename


@dataclass(frozen=True)
class Found:
    """A published model, in our words.

    Attributes:
        description: arguments of :class:`vit_rpe.VisionTransformer`, and how rotary weights were laid out.
        weights: under our names.
        grid: the token grid they were trained on.
    """

    description: Description
    weights: Weights
    grid: Grid


def vision_transformer(
    weights: Mapping[str, Tensor],
    rpe: Spec,
    grid: Grid,
    *,
    num_heads: int,
    layout: Layout | None = None,
    encodings: Mapping[Placed, Tensor] | None = None,
    **args: Any,
) -> Found:
    """A vision transformer with a class token, whose names are those of DeiT's code.

    Args:
        weights: apart from what belongs to the position.
        rpe, grid, num_heads, layout: that the names do not tell.
        encodings: parameters of the position, by our names.
        args: arguments that differ from DeiT's.
    """
    kernel, hidden = weights["patch_embed.proj.weight"], weights["blocks.0.mlp.fc1.weight"].shape[0]
    dim, patch = kernel.shape[0], tuple(kernel.shape[2:])
    described = {
        "img_size": tuple(count * side for count, side in zip(grid, patch, strict=True)),
        "patch_size": patch,
        "in_chans": kernel.shape[1],
        "embed_dim": dim,
        "depth": count_of(weights, r"blocks\.(\d+)\."),
        "num_heads": num_heads,
        "mlp_ratio": ratio_of(hidden, dim),
        "mlp_layer": "mlp",
        "num_classes": weights["head.weight"].shape[0] if "head.weight" in weights else 0,
        "class_token": True,
        "reg_tokens": 0,
        "pos_embed": "learned" if "pos_embed" in weights else "none",
        "no_embed_class": False,
        "pre_norm": False,
        "qkv_bias": "blocks.0.attn.qkv.bias" in weights,
        "proj_bias": "blocks.0.attn.proj.bias" in weights,
        "qk_norm": "blocks.0.attn.q_norm.weight" in weights,
        "scale_attn_norm": False,
        "scale_mlp_norm": False,
        "init_values": 1e-4 if {"blocks.0.gamma_1", "blocks.0.ls1.gamma"} & weights.keys() else None,
        "global_pool": "token",
        "norm_layer": "layernorm",
        "norm_eps": 1e-6,
        "rpe": rpe,
        **args,
    }
    layout = Layout() if layout is None else layout
    renamed = rename(weights, num_heads, layout)
    return Found(Description(described, layout), renamed._replace(encodings=dict(encodings or {})), grid)


def count_of(names: Mapping[str, Any], pattern: str) -> int:
    """One more than the largest number that a pattern finds at the beginning of the names."""
    return 1 + max((int(found[1]) for name in names if (found := re.match(pattern, name))), default=-1)


def square_grid(num_patches: int, method: str) -> Grid:
    """The grid of P patches of a method whose code takes the square root itself.

    Raises:
        ValueError: P is no square.
    """
    side = isqrt(num_patches)
    if side * side != num_patches:
        raise ValueError(f"{method}'s code knows square images only, and the file has {num_patches} patches")
    return side, side


def base_of(speeds: Tensor, method: str) -> float:
    """The base b of rotary speeds b^(-t / n), t = 0 ... n - 1, to five digits; 100 where one speed tells none.

    Raises:
        ValueError: the speeds are no powers of one base.
    """
    count = len(speeds)
    base = 100.0 if count == 1 else float(f"{float(speeds[-1]) ** (-count / (count - 1)):.5g}")
    expected = base ** (-torch.arange(count, dtype=torch.float64) / count)
    if not torch.allclose(speeds.double(), expected, rtol=1e-4, atol=0):
        raise ValueError(f"the rotary speeds of this {method} are no powers of one base: {speeds.tolist()}")
    return base
