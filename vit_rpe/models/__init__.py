"""Models: the vision transformer, the sequence transformer, and their timm entry points."""

from vit_rpe.models import rpe_sequence as rpe_sequence
from vit_rpe.models import vit_rpe as vit_rpe
from vit_rpe.models.convert import add_rpe, from_timm
from vit_rpe.models.sequence import SequenceTransformer
from vit_rpe.models.vit import VisionTransformer

__all__ = ["SequenceTransformer", "VisionTransformer", "add_rpe", "from_timm"]
