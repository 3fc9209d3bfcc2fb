"""Other people's models: what each of their attention calls sees of the image, and how to take such a call apart."""

from vit_rpe.models.families._interface import Family, Place, PlacedLayer, Sight, whole_image
from vit_rpe.models.families._registry import (
    described,
    family_of,
    is_described,
    register,
    require_described,
    without_map,
)
from vit_rpe.models.families._watch import around, place_layers

__all__ = [
    "Family",
    "Place",
    "PlacedLayer",
    "Sight",
    "around",
    "described",
    "family_of",
    "is_described",
    "place_layers",
    "register",
    "require_described",
    "whole_image",
    "without_map",
]
