"""One colour for each family of encodings, the same in every picture, told apart by colour-blind readers too.

A family is what an encoding adds to attention (``Card.adds``), so that encodings from elsewhere have one as well. The
colours are those of Okabe and Ito (Color Universal Design, 2008), without yellow, which white paper swallows.
"""

from __future__ import annotations

from typing import Any

from vit_rpe.encodings import encoding_class, parse_specs

FAMILIES = {
    "no position": "#000000",
    "embedding": "#E69F00",
    "bias": "#0072B2",
    "relative vectors": "#009E73",
    "rotation": "#D55E00",
    "features": "#CC79A7",
    "several": "#56B4E9",
}
"""Colour by family, in the order of legends."""

_OF_FIELDS = {
    "rotation": {"rotate_q", "rotate_k", "polar_q", "polar_k", "blocks_q", "blocks_k"},
    "relative vectors": {"on_query", "on_key", "on_value"},
    "features": {"features"},
}


def encoding_family(rpe: Any, pos_embed: str = "none") -> str:
    """The family of what a model takes as ``rpe`` and ``pos_embed``: a key of ``FAMILIES``.

    Raises:
        ValueError: an unknown encoding.
    """
    specs = parse_specs(rpe)
    if len(specs) + (pos_embed != "none") > 1:
        return "several"
    if not specs:
        return "no position" if pos_embed == "none" else "embedding"
    adds = set(encoding_class(specs[0]["name"]).card.adds)
    return next((family for family, fields in _OF_FIELDS.items() if adds & fields), "bias")
