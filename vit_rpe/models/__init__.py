"""Models: the vision transformer, its timm entry points, and the sequence transformer."""

from vit_rpe.models import vit_rpe as vit_rpe
from vit_rpe.models.vit import VisionTransformer

__all__ = ["VisionTransformer"]
