"""Queries, keys and values of timm's layers whose biases lie beside the projection.

Legend: B batch, N tokens, C channels, H heads, D head width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.models.families._interface import PlacedLayer


def project_together(layer: Any, x: Tensor) -> Tensor:
    """Queries, keys and values in one, (B, N, C) to (B, N, 3 H D); keys have no bias.

    timm takes the weight of ``qkv`` and leaves out what is put around it, unless ``qkv_bias_separate`` is set: so do
    the maps of its layers. In a layer of ours ``qkv`` is called.
    """
    if layer.q_bias is None:
        return layer.qkv(x)
    bias = torch.cat((layer.q_bias, torch.zeros_like(layer.v_bias), layer.v_bias))
    if isinstance(layer, PlacedLayer) or layer.qkv_bias_separate:
        return layer.qkv(x) + bias
    return F.linear(x, layer.qkv.weight, bias)
