"""torchvision's Swin and SwinV2: layers that are given the whole image and cut it into windows themselves.

The image is padded, then rolled.

Legend: B samples, W windows of one image, H heads, D head width, N tokens of a window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.models import swin_transformer

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Place, Sight
from vit_rpe.models.families._own import OwnPosition, flat_table, network_position
from vit_rpe.models.families._windows import Size, cut, neighbours, padded_size, partition, unpartition
from vit_rpe.position.geometry import TokenGrid


class TorchvisionSwin(Family):
    """A table (R, H) over offsets."""

    layers = (swin_transformer.ShiftedWindowAttention,)
    cuts_inside = True

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight:
        image = tuple(inputs["x"].shape[1:3])
        return cut(image, tuple(layer.window_size), shift=_shift(layer, image), pads_first=True)

    def head_width(self, layer: Any) -> int:
        return len(layer.qkv.weight) // (3 * layer.num_heads)

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        window = tuple(layer.window_size)
        return OwnPosition("bias", TokenGrid(window), flat_table(layer.relative_position_bias_table, window))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        image, window = tuple(inputs["x"].shape[1:3]), tuple(layer.window_size)
        shift = _shift(layer, image)
        x = partition(inputs["x"], window, shift)
        qkv = F.linear(x, layer.qkv.weight, self.bias(layer)).unflatten(-1, (3, layer.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k, scale = self.scaled(layer, q, k)
        visible = neighbours(image, window, shift, x.device)
        if visible is not None:
            visible = visible.repeat(len(inputs["x"]), 1, 1)[:, None]

        def finish(attended: Tensor) -> Tensor:
            out = F.linear(attended.transpose(1, 2).flatten(2), layer.proj.weight, layer.proj.bias)
            return unpartition(F.dropout(out, layer.dropout, layer.training), image, window, shift)

        grid = TokenGrid(window)
        dropout_p = layer.attention_dropout if layer.training else 0.0
        return AttentionCall(q, k, v, position, visible, scale, finish, dropout_p=dropout_p, q_grid=grid, k_grid=grid)

    def bias(self, layer: Any) -> Tensor | None:
        """Of queries, keys and values in one, (3 H D,)."""
        found: Tensor | None = layer.qkv.bias
        return found

    def scaled(self, layer: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        """Queries and keys as they meet, and the softmax scale."""
        return q, k, q.shape[-1] ** -0.5


class TorchvisionSwinV2(TorchvisionSwin):
    """Cosine attention, a network over log offsets, and keys without a bias."""

    layers = (swin_transformer.ShiftedWindowAttentionV2,)

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        window = tuple(layer.window_size)
        return network_position({"mode": "swinv2", "native": window}, TokenGrid(window), layer.cpb_mlp, "0", "2")

    def bias(self, layer: Any) -> Tensor | None:
        if layer.qkv.bias is None:
            return None
        q, k, v = layer.qkv.bias.chunk(3)
        return torch.cat([q, torch.zeros_like(k), v])

    def scaled(self, layer: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        scale = layer.logit_scale.clamp(max=math.log(100.0)).exp()
        return F.normalize(q, dim=-1) * scale, F.normalize(k, dim=-1), 1.0


def _shift(layer: Any, image: Size) -> Size:
    """An axis that one window covers is not rolled."""
    sides = zip(layer.shift_size, layer.window_size, padded_size(image, tuple(layer.window_size)), strict=True)
    return tuple(0 if window >= side else shift for shift, window, side in sides)
