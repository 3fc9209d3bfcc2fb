"""Swin Transformer and its two second versions: windows of the image, every other time shifted.

Swin Transformer, arXiv 2103.14030: a table over offsets. V2, arXiv 2111.09883: cosine attention and a network over log
offsets; timm has it twice, the second (``cr``) with another network. All cut windows after rolling the image, then pad;
padded tokens are attended to like others.

Legend: B W windows of all samples, H heads, D head width, N tokens of a window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from timm.models import swin_transformer, swin_transformer_v2, swin_transformer_v2_cr
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Layers, Place, Sight
from vit_rpe.models.families._own import OwnPosition, flat_table, linear_weights, network_position
from vit_rpe.models.families._qkv import project_together
from vit_rpe.models.families._windows import cut, shift_mask
from vit_rpe.position.geometry import TokenGrid


class ShiftedWindows(Family):
    """What the three have in common: the block around an attention knows shift and size."""

    takes_position = True
    mask_argument = "mask"

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        block: Any = around[0]
        return {"shift": tuple(block.shift_size)}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[1:3])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        return cut(place.image, tuple(layer.window_size), shift=place.facts["shift"])

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        return TokenGrid(tuple(layer.window_size))

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (self.native(layer, {}),) * 2

    def native_visible(self, layer: Any, around: Sequence[nn.Module]) -> Tensor | None:
        block: Any = around[0]
        mask: Tensor | None = None if block.dynamic_mask else block.attn_mask
        return None if mask is None else mask == 0

    def head_width(self, layer: Any) -> int:
        return round(layer.scale**-2)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        qkv = self.project(layer, x).reshape(*x.shape[:2], 3, layer.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k, scale = self.scaled(layer, q, k)

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.proj(attended.transpose(1, 2).flatten(2)))

        grid = TokenGrid(tuple(layer.window_size))
        dropout_p = layer.attn_drop.p if layer.training else 0.0
        visible = shift_mask(inputs.get("mask"), x.shape[0])
        return AttentionCall(q, k, v, position, visible, scale, finish, dropout_p=dropout_p, q_grid=grid, k_grid=grid)

    def project(self, layer: Any, x: Tensor) -> Tensor:
        """Queries, keys and values in one, (B W, N, 3 H D)."""
        return layer.qkv(x)

    def scaled(self, layer: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        """Queries and keys as they meet, and the softmax scale."""
        return q, k, layer.scale


class Swin(ShiftedWindows):
    """A table (R, H) over offsets in every layer."""

    layers = (swin_transformer.WindowAttention,)
    position_names = ("relative_position_bias_table", "relative_position_index")

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        table = layer.relative_position_bias_table
        weights = self.translate(layer, {"relative_position_bias_table": table})
        return OwnPosition("bias", self.native(layer, facts), weights)

    def translate(self, layer: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return flat_table(weights["relative_position_bias_table"], layer.window_size)


class SwinV2(ShiftedWindows):
    """Cosine attention; ``cpb`` in mode ``swinv2``, relative to the window of pre-training where there was one."""

    layers: ClassVar[Layers] = (swin_transformer_v2.WindowAttention,)
    position_names: ClassVar[tuple[str, ...]] = ("cpb_mlp", "relative_coords_table", "relative_position_index")

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        pretrained, window = tuple(layer.pretrained_window_size), tuple(layer.window_size)
        spec = {"mode": "swinv2", "native": pretrained if pretrained[0] > 0 else window}
        return network_position(spec, self.native(layer, facts), layer.cpb_mlp, "0", "2")

    def translate(self, layer: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return linear_weights(weights, "cpb_mlp.0", "cpb_mlp.2")

    def head_width(self, layer: Any) -> int:
        return layer.dim // layer.num_heads

    def project(self, layer: Any, x: Tensor) -> Tensor:
        return project_together(layer, x)

    def scaled(self, layer: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        scale = layer.logit_scale.reshape(-1, 1, 1).clamp(max=math.log(100.0)).exp()
        return F.normalize(q, dim=-1) * scale, F.normalize(k, dim=-1), 1.0


class SwinV2Cr(SwinV2):
    """Cosine attention; ``cpb`` in mode ``log``. timm drops hidden units of the network in training, ours does not."""

    layers = (swin_transformer_v2_cr.WindowMultiHeadAttention,)
    position_names = ("meta_mlp", "relative_coordinates_log")

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        return network_position({"mode": "log"}, self.native(layer, facts), layer.meta_mlp, "fc1", "fc2")

    def translate(self, layer: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return linear_weights(weights, "meta_mlp.fc1", "meta_mlp.fc2")

    def head_width(self, layer: Any) -> int:
        return layer.in_features // layer.num_heads

    def project(self, layer: Any, x: Tensor) -> Tensor:
        return layer.qkv(x)
