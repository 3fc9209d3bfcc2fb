"""Relative position encodings for vision transformers and token sequences.

>>> import timm, vit_rpe
>>> model = timm.create_model("vit_rpe_tiny_patch4_32", rpe="bias", num_classes=10)
"""

from vit_rpe.attention import attend, attention_weights
from vit_rpe.encodings import PositionEncoding, create_encoding, list_encodings
from vit_rpe.geometry import TokenGrid
from vit_rpe.layers import RelativeMultiheadAttention
from vit_rpe.models import VisionTransformer
from vit_rpe.scalar_bias import RelativePositionBias
from vit_rpe.terms import PositionTerms

__version__ = "0.1.0"

__all__ = [
    "PositionEncoding",
    "PositionTerms",
    "RelativeMultiheadAttention",
    "RelativePositionBias",
    "TokenGrid",
    "VisionTransformer",
    "__version__",
    "attend",
    "attention_weights",
    "create_encoding",
    "list_encodings",
]
