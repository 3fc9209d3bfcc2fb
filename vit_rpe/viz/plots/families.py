"""One colour for each family of encodings, the same in every picture, told apart by colour-blind readers too.

A family is what an encoding adds to attention (``Card.adds``), so that encodings from elsewhere have one as well. The
colours are those of Okabe and Ito (Color Universal Design, 2008), without yellow, which white paper swallows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from vit_rpe.encodings import encoding_class, list_encodings, parse_specs

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


MOST_LINES = 11
"""Lines in one panel that a reader can still follow."""
_EMBEDDINGS = ("learned", "sincos", "conditional")
_STYLES, _MARKERS = ("-", "--", "-.", ":"), "osD^vP*Xph<>"


def family_of_label(label: str) -> str | None:
    """The family of a line that is labelled with an encoding's name and perhaps more: ``bias_wide``, ``rope, seed 1``.

    Of several names the longest counts, of these the first; None where there is none.
    """
    words = f"_{re.sub('[^a-z0-9]+', '_', label.lower())}_"
    named = [name for name in (*list_encodings(), *_EMBEDDINGS) if f"_{name}_" in words]
    if not named:
        return None
    name = max(named, key=lambda one: (len(one), -words.find(f"_{one}_")))
    return "embedding" if name in _EMBEDDINGS else encoding_family(name)


def looks(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """For each label what ``plot`` takes: the colour of its family, a line and a marker of its own within it.

    Labels of no encoding have one colour each where all are such and there are enough colours, else grey.
    """
    labels = list(labels)
    others, colours = all(family_of_label(label) is None for label in labels), list(FAMILIES.values())
    found: dict[str, dict[str, Any]] = {}
    members: dict[str, int] = {}
    for number, label in enumerate(labels):
        colour = FAMILIES.get(family_of_label(label) or "", "0.5")
        if others and len(labels) <= len(colours):
            colour = colours[number]
        place = members[colour] = members.get(colour, -1) + 1
        style, marker = _STYLES[place % len(_STYLES)], _MARKERS[place % len(_MARKERS)]
        found[label] = {"color": colour, "linestyle": style, "marker": marker}
    return found


def in_panels(labels: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Labels for panels of at most :data:`MOST_LINES`: all in one without a title, else by family, else in parts."""
    everything = list(labels)
    if len(everything) <= MOST_LINES:
        return [("", everything)]
    parts = []
    for family in (*FAMILIES, None):
        mine = [label for label in everything if family_of_label(label) == family]
        chunks = [mine[start : start + MOST_LINES] for start in range(0, len(mine), MOST_LINES)]
        title = family or "others"
        parts += [(title if len(chunks) == 1 else f"{title} ({n})", chunk) for n, chunk in enumerate(chunks, 1)]
    return parts
