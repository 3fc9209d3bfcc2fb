"""Taking position out of a trained model, to see how much it leans on it."""

from __future__ import annotations

from torch import nn

from vit_rpe.layers import RelativeMultiheadAttention
from vit_rpe.models.sequence.model import SequenceTransformer
from vit_rpe.models.vision.vit import VisionTransformer


def remove_position(model: nn.Module) -> None:
    """Take the encodings and the absolute embedding out of a model, for good; causal order and windows stay.

    Raises:
        ValueError: neither a vision nor a sequence transformer of this package.
    """
    if not isinstance(model, (VisionTransformer, SequenceTransformer)):
        raise ValueError(f"position can be removed from our transformers only, got {type(model).__name__}")
    model.rpe = None
    model.pos_embed = None
    model.pos_embed_type = "none"
    for module in model.modules():
        if isinstance(module, RelativeMultiheadAttention):
            module.rpe = None
