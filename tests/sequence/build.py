"""Small sequence models with large, distinct parameters; every length in these tests is different."""

from __future__ import annotations

from typing import Any

import torch

from vit_rpe.encodings import encoding_class, list_encodings
from vit_rpe.models import SequenceTransformer

VOCABULARY, LENGTH, WIDTH, HEADS, DEPTH = 13, 9, 24, 2, 3

# how a model knows position: an encoding in its attention, or an absolute embedding
POSITIONS: dict[str, dict[str, Any]] = {
    **{name: {"rpe": name} for name in list_encodings() if 1 in encoding_class(name).card.axes},
    "learned": {"rpe": "none", "pos_embed": "learned"},
    "sincos": {"rpe": "none", "pos_embed": "sincos"},
    "two-at-once": {"rpe": ["t5", "rope"], "pos_embed": "sincos"},
    "shared": {"rpe": "bias", "rpe_shared": True},
}


def build(position: str = "bias", **options: Any) -> SequenceTransformer:
    """A float64 model in eval mode."""
    sizes = {"embed_dim": WIDTH, "depth": DEPTH, "num_heads": HEADS, "mlp_ratio": 1.5}
    if "in_features" not in options:
        options = {"vocab_size": VOCABULARY, **options}
    model = SequenceTransformer(length=LENGTH, **{**sizes, **POSITIONS[position], **options}).double().eval()
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = 0.5 * values / (parameter.shape[-1] ** 0.5 if parameter.ndim == 2 else 1.0)
    return model


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch, length))
