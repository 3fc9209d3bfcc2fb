"""The sequence transformer: from token ids to features and logits."""

from vit_rpe.models.sequence.model import SequenceTransformer

__all__ = ["SequenceTransformer"]
