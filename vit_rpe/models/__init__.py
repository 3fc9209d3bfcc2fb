"""Models: the vision transformer, the sequence transformer, and their timm entry points."""

from vit_rpe.models import rpe_sequence as rpe_sequence
from vit_rpe.models import vit_rpe as vit_rpe
from vit_rpe.models import vit_rpe_windowed as vit_rpe_windowed
from vit_rpe.models.exchange import add_rpe, freeze, from_published, from_timm, replace_attention, unfreeze
from vit_rpe.models.sequence.model import SequenceTransformer
from vit_rpe.models.vision.vit import VisionTransformer

__all__ = [
    "SequenceTransformer",
    "VisionTransformer",
    "add_rpe",
    "freeze",
    "from_published",
    "from_timm",
    "replace_attention",
    "unfreeze",
]
