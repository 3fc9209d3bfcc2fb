"""Relative position encodings, one paper a file. This page is the table of contents."""

from vit_rpe.encodings._base import (
    Card,
    PositionEncoding,
    Spec,
    create_encoding,
    encoding_class,
    encoding_options,
    list_encodings,
    parse_spec,
    parse_specs,
    register,
    resized,
)
from vit_rpe.encodings.alibi import Alibi
from vit_rpe.encodings.bias import RelativeBias
from vit_rpe.encodings.bias_axial import AxialBias
from vit_rpe.encodings.combined import (
    CombinedEncoding,
    create_position,
    encodings_of,
    resized_position,
)
from vit_rpe.encodings.none import NoPosition
from vit_rpe.encodings.rope import Rope

__all__ = [
    "Alibi",
    "AxialBias",
    "Card",
    "CombinedEncoding",
    "NoPosition",
    "PositionEncoding",
    "RelativeBias",
    "Rope",
    "Spec",
    "create_encoding",
    "create_position",
    "encoding_class",
    "encoding_options",
    "encodings_of",
    "list_encodings",
    "parse_spec",
    "parse_specs",
    "register",
    "resized",
    "resized_position",
]
