"""Other people's models: what each of their attention calls sees of the image, and how to take such a call apart."""

from vit_rpe.models.families._interface import Family, Place, Sight
from vit_rpe.models.families._registry import family_of, is_described, register
from vit_rpe.models.families._watch import place_layers

__all__ = ["Family", "Place", "Sight", "family_of", "is_described", "place_layers", "register"]
