"""Which of timm's pretrained files should be taken in, and how each is tried."""

from vit_rpe.models.exchange.coverage.listing import (
    architectures,
    files,
    has_relative_position,
    may_have_position,
    on_meta,
)
from vit_rpe.models.exchange.coverage.reduced import reduced_args

__all__ = ["architectures", "files", "has_relative_position", "may_have_position", "on_meta", "reduced_args"]
