"""Files that authors of a method published with a model of their own, outside timm."""

from vit_rpe.models.exchange.published.load import FORMATS, from_published

__all__ = ["FORMATS", "from_published"]
