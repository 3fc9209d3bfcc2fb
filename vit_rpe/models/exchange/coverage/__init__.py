"""Which of timm's pretrained files should be taken in, and how each is tried."""

from vit_rpe.models.exchange.coverage.differences import Differences, differences_of
from vit_rpe.models.exchange.coverage.float64 import in_float64
from vit_rpe.models.exchange.coverage.listing import (
    architectures,
    files,
    has_relative_position,
    may_have_position,
    on_meta,
)
from vit_rpe.models.exchange.coverage.random_weights import randomize
from vit_rpe.models.exchange.coverage.reduced import reduced_args

__all__ = [
    "Differences",
    "architectures",
    "differences_of",
    "files",
    "has_relative_position",
    "in_float64",
    "may_have_position",
    "on_meta",
    "randomize",
    "reduced_args",
]
