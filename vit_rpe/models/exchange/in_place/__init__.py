"""Position of ours inside other people's models, which stay the objects they are."""

from vit_rpe.models.exchange.in_place.freeze import freeze, unfreeze
from vit_rpe.models.exchange.in_place.positioned import PositionedAttention, positioned_layers
from vit_rpe.models.exchange.in_place.replace import KEEP, replace_attention
from vit_rpe.models.exchange.in_place.retrofit import add_rpe

__all__ = ["KEEP", "PositionedAttention", "add_rpe", "freeze", "positioned_layers", "replace_attention", "unfreeze"]
