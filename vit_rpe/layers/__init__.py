"""Layers with relative position: what people put into their own models."""

from vit_rpe.layers._interface import AttentionLayer
from vit_rpe.layers.absolute import LearnedEmbedding, sincos_embedding
from vit_rpe.layers.attention import RelativeMultiheadAttention
from vit_rpe.layers.block import Block
from vit_rpe.layers.conditional import ConditionalPosition
from vit_rpe.layers.scalar_bias import RelativePositionBias

__all__ = [
    "AttentionLayer",
    "Block",
    "ConditionalPosition",
    "LearnedEmbedding",
    "RelativeMultiheadAttention",
    "RelativePositionBias",
    "sincos_embedding",
]
