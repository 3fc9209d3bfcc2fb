"""Plain vision transformers: timm's ``Attention`` over all tokens of the image.

Legend: B batch, H heads, D head width, N tokens with prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timm.layers import Attention
from timm.models.naflexvit import NaFlexVit
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Sight
from vit_rpe.models.families._sequence import WholeSequence, sequence_call


class PlainViT(WholeSequence):
    """No position of its own: that is in the embedding."""

    takes_position = True
    layers = (Attention,)
    hosts = (VisionTransformer, NaFlexVit)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        qkv = layer.qkv(x).reshape(*x.shape[:2], 3, layer.num_heads, layer.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        gate = None if layer.gate is None else layer.gate(x).sigmoid()

        def finish(attended: Tensor) -> Tensor:
            out = layer.norm(attended.transpose(1, 2).flatten(2))
            return layer.proj_drop(layer.proj(out if gate is None else out * gate))

        return sequence_call(layer, (layer.q_norm(q), layer.k_norm(k), v), finish, inputs, sight, position)
