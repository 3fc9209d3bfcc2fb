"""Relative position encodings for vision transformers and token sequences.

>>> import timm, vit_rpe
>>> model = timm.create_model("vit_rpe_tiny_patch4_32", rpe="bias", num_classes=10)
"""

import importlib
from typing import Any

from vit_rpe._moved import install
from vit_rpe.attention import attend, attention_weights
from vit_rpe.encodings import PositionEncoding, create_encoding, list_encodings
from vit_rpe.layers import RelativeMultiheadAttention
from vit_rpe.layers.absolute import LearnedEmbedding, sincos_embedding
from vit_rpe.layers.scalar_bias import RelativePositionBias
from vit_rpe.models import VisionTransformer, add_rpe, from_timm
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import PositionTerms

install()

__version__ = "0.1.0"

__all__ = [
    "LearnedEmbedding",
    "PositionEncoding",
    "PositionTerms",
    "RelativeMultiheadAttention",
    "RelativePositionBias",
    "TokenGrid",
    "VisionTransformer",
    "__version__",
    "add_rpe",
    "attend",
    "attention_weights",
    "create_encoding",
    "from_timm",
    "list_encodings",
    "sincos_embedding",
]


def __getattr__(name: str) -> Any:
    """``vit_rpe.viz`` is imported when it is first used."""
    if name == "viz":
        return importlib.import_module("vit_rpe.viz")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
