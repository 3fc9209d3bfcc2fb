"""Swin and SwinV2 of Hugging Face's ``transformers``: timm's windows and tables, queries, keys and values apart.

Legend: B W windows of all samples, H heads, D head width, N tokens of a window.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Place, Sight
from vit_rpe.models.families._own import OwnPosition, flat_table, network_position
from vit_rpe.models.families._windows import cut, shift_mask
from vit_rpe.position.geometry import TokenGrid


class HuggingFaceWindows(Family):
    """What both have in common: square windows, shifted where the layer is given a mask."""

    tokens = ("hidden_states",)

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        return {"shift": int(self.block(around).shift_size)}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return self.block(around)

    def block(self, around: Sequence[nn.Module]) -> Any:
        """The block, which cuts windows."""
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[1])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        shift = 0 if inputs.get("attention_mask") is None else place.facts["shift"]
        return cut(place.image, self.window(layer), shift=(shift, shift), pads_first=True)

    def window(self, layer: Any) -> tuple[int, int]:
        """Rows and columns of a window."""
        height, width = layer.window_size
        return height, width

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (TokenGrid(self.window(layer)),) * 2

    def num_heads(self, layer: Any) -> int:
        return int(layer.num_attention_heads)

    @abstractmethod
    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        """The layer's own position as an encoding of ours."""

    def windows_call(
        self,
        qkv: Sequence[Tensor],
        scale: float,
        finish: Any,
        inputs: Mapping[str, Any],
        position: Position,
        grid: TokenGrid,
        dropout_p: float,
    ) -> AttentionCall:
        """The call of q, k and v (B W, H, N, D)."""
        q, k, v = qkv
        visible = shift_mask(inputs.get("attention_mask"), q.shape[0])
        return AttentionCall(q, k, v, position, visible, scale, finish, dropout_p=dropout_p, q_grid=grid, k_grid=grid)


class HuggingFaceSwin(HuggingFaceWindows):
    """A table (R, H) over offsets in every layer."""

    layers = ("transformers.models.swin.modeling_swin.SwinAttention",)

    def window(self, layer: Any) -> tuple[int, int]:
        height, width = layer.relative_position_bias.window_size
        return height, width

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        table = layer.relative_position_bias.relative_position_bias_table
        return OwnPosition("bias", TokenGrid(self.window(layer)), flat_table(table, self.window(layer)))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs[self.tokens[0]]
        parts = (layer.q_proj(x), layer.k_proj(x), layer.v_proj(x))
        qkv = [part.unflatten(-1, (-1, layer.head_dim)).transpose(1, 2) for part in parts]

        def finish(attended: Tensor) -> Tensor:
            out: Tensor = layer.o_proj(attended.transpose(1, 2).flatten(2))
            return out

        dropout_p = layer.attention_dropout if layer.training else 0.0
        grid = TokenGrid(self.window(layer))
        return self.windows_call(qkv, layer.scaling, finish, inputs, position, grid, dropout_p)


class HuggingFaceSwinV2(HuggingFaceWindows):
    """Cosine attention, and a network over log offsets. The last projection is that of the module around the layer."""

    layers = ("transformers.models.swinv2.modeling_swinv2.Swinv2SelfAttention",)

    def block(self, around: Sequence[nn.Module]) -> Any:
        return around[1]

    def head_width(self, layer: Any) -> int:
        return int(layer.attention_head_size)

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        window, pretrained = self.window(layer), tuple(layer.pretrained_window_size)
        spec = {"mode": "swinv2", "native": pretrained if pretrained[0] > 0 else window}
        return network_position(spec, TokenGrid(window), layer.continuous_position_bias_mlp, "0", "2")

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs[self.tokens[0]]
        parts = (layer.query(x), layer.key(x), layer.value(x))
        q, k, v = (part.unflatten(-1, (-1, layer.attention_head_size)).transpose(1, 2) for part in parts)
        scale = layer.logit_scale.clamp(max=math.log(100.0)).exp()
        q, k = F.normalize(q, dim=-1) * scale, F.normalize(k, dim=-1)
        dropout_p = layer.dropout.p if layer.training else 0.0
        grid = TokenGrid(self.window(layer))
        return self.windows_call((q, k, v), 1.0, _join, inputs, position, grid, dropout_p)


def _join(attended: Tensor) -> Tensor:
    """Heads side by side."""
    return attended.transpose(1, 2).flatten(2)
