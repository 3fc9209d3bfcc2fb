"""Weights and models of timm, made to fit ours."""

from vit_rpe.models.exchange.describe import Description, describe
from vit_rpe.models.exchange.from_timm import from_timm
from vit_rpe.models.exchange.in_place import add_rpe, freeze, replace_attention, unfreeze
from vit_rpe.models.exchange.load import checkpoint_filter
from vit_rpe.models.exchange.public import PUBLIC, public_description, public_name
from vit_rpe.models.exchange.published import from_published

__all__ = [
    "PUBLIC",
    "Description",
    "add_rpe",
    "checkpoint_filter",
    "describe",
    "freeze",
    "from_published",
    "from_timm",
    "public_description",
    "public_name",
    "replace_attention",
    "unfreeze",
]
