"""Relative position encodings, one paper a file. This page is the table of contents."""

from vit_rpe.encodings._base import (
    Card,
    PositionEncoding,
    create_encoding,
    encoding_class,
    encoding_options,
    list_encodings,
    parse_spec,
    register,
    resized,
)
from vit_rpe.encodings.alibi import Alibi
from vit_rpe.encodings.bias import RelativeBias
from vit_rpe.encodings.bias_axial import AxialBias
from vit_rpe.encodings.none import NoPosition
from vit_rpe.encodings.rope import Rope

__all__ = [
    "Alibi",
    "AxialBias",
    "Card",
    "NoPosition",
    "PositionEncoding",
    "RelativeBias",
    "Rope",
    "create_encoding",
    "encoding_class",
    "encoding_options",
    "list_encodings",
    "parse_spec",
    "register",
    "resized",
]
