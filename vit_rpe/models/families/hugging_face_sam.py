"""Segment Anything's image encoder and ViTDet of Hugging Face's ``transformers``: as timm's, under other names.

Legend: B W windows of all samples, H heads, D head width, h x w tokens of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Layers, Sight
from vit_rpe.models.families._own import OwnPosition
from vit_rpe.models.families.sam import SegmentAnything
from vit_rpe.position.geometry import TokenGrid


class HuggingFaceSam(SegmentAnything):
    """``eager`` and ``sdpa`` are two classes."""

    layers: ClassVar[Layers] = (
        "transformers.models.sam.modeling_sam.SamVisionAttention",
        "transformers.models.sam.modeling_sam.SamVisionSdpaAttention",
    )
    tokens = ("hidden_states",)
    native = Family.native

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        block: Any = around[0]
        return {"window": block.window_size}

    def grids(self, layer: Any, place: Any, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (TokenGrid(tuple(inputs[self.tokens[0]].shape[1:3])),) * 2

    def num_heads(self, layer: Any) -> int:
        return int(layer.num_attention_heads)

    def head_width(self, layer: Any) -> int:
        return round(layer.scale**-2)

    def has_position(self, layer: Any) -> bool:
        """Whether the layer has tables."""
        return bool(layer.use_rel_pos)

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition | None:
        return self.tables(layer) if self.has_position(layer) else None

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs[self.tokens[0]]
        batch, height, width, _ = x.shape
        qkv = layer.qkv(x).reshape(batch, height * width, 3, self.num_heads(layer), -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)

        def finish(attended: Tensor) -> Tensor:
            out: Tensor = layer.proj(attended.transpose(1, 2).reshape(batch, height, width, -1))
            return out

        grid = TokenGrid((height, width))
        dropout_p = getattr(layer, "dropout", 0.0) if layer.training else 0.0
        return AttentionCall(
            q, k, v, position, None, layer.scale, finish, dropout_p=dropout_p, q_grid=grid, k_grid=grid
        )


class HuggingFaceVitDet(HuggingFaceSam):
    """Blocks come channels first."""

    layers = ("transformers.models.vitdet.modeling_vitdet.VitDetAttention",)
    tokens = ("hidden_state",)

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[-2:])

    def num_heads(self, layer: Any) -> int:
        return int(layer.num_heads)

    def has_position(self, layer: Any) -> bool:
        return bool(layer.use_relative_position_embeddings)
