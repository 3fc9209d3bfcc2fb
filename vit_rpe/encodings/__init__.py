"""Relative position encodings, one paper a file. This page is the table of contents."""

from vit_rpe.encodings._bibtex import bibtex
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._create import create_encoding
from vit_rpe.encodings._interface import PositionEncoding, check_resizable, find_encodings, terms_of_tokens
from vit_rpe.encodings._registry import encoding_class, encoding_options, list_encodings, register
from vit_rpe.encodings._renamed import create_position, encodings_of, is_per_pair, resized, resized_position
from vit_rpe.encodings._spec import Spec, parse_spec, parse_specs
from vit_rpe.encodings.alibi import Alibi
from vit_rpe.encodings.bias import AxialBias, RelativeBias
from vit_rpe.encodings.combined import CombinedEncoding
from vit_rpe.encodings.cpb import ContinuousBias
from vit_rpe.encodings.deberta import Deberta
from vit_rpe.encodings.decomposed import Decomposed
from vit_rpe.encodings.fire import Fire
from vit_rpe.encodings.fourier import Fourier
from vit_rpe.encodings.frozen import FrozenPosition
from vit_rpe.encodings.gaussian import Gaussian
from vit_rpe.encodings.irpe import IRPE
from vit_rpe.encodings.kerple import Kerple
from vit_rpe.encodings.liere import LieRE
from vit_rpe.encodings.lookhere import LookHere
from vit_rpe.encodings.none import NoPosition
from vit_rpe.encodings.pape import PaPE, PaPERotationInvariant
from vit_rpe.encodings.pope import Pope
from vit_rpe.encodings.rope import Rope
from vit_rpe.encodings.rope_mixed import RopeMixed
from vit_rpe.encodings.rope_normalized import RopeNormalized
from vit_rpe.encodings.shaw import Shaw
from vit_rpe.encodings.t5 import T5Bias
from vit_rpe.encodings.transformer_xl import TransformerXL

__all__ = [
    "IRPE",
    "Alibi",
    "AxialBias",
    "Card",
    "CombinedEncoding",
    "ContinuousBias",
    "Deberta",
    "Decomposed",
    "Fire",
    "Fourier",
    "FrozenPosition",
    "Gaussian",
    "Kerple",
    "LieRE",
    "LookHere",
    "NoPosition",
    "PaPE",
    "PaPERotationInvariant",
    "Pope",
    "PositionEncoding",
    "RelativeBias",
    "Rope",
    "RopeMixed",
    "RopeNormalized",
    "Shaw",
    "Spec",
    "T5Bias",
    "TransformerXL",
    "bibtex",
    "check_resizable",
    "create_encoding",
    "create_position",
    "encoding_class",
    "encoding_options",
    "encodings_of",
    "find_encodings",
    "is_per_pair",
    "list_encodings",
    "parse_spec",
    "parse_specs",
    "register",
    "resized",
    "resized_position",
    "terms_of_tokens",
]
