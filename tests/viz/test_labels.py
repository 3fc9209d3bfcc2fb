"""Names beside lines, and the colours of families."""

import pytest

from vit_rpe.encodings import list_encodings
from vit_rpe.viz.plots.families import FAMILIES, encoding_family
from vit_rpe.viz.plots.labels import spread


def test_places_move_as_little_as_they_must():
    assert spread([0.1, 0.5, 0.9], 0.1, 0, 1) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5], 0.2, 0, 1) == pytest.approx([0.4, 0.6])
    assert spread([0.2, 0.5, 0.5, 0.5], 0.1, 0, 1) == pytest.approx([0.2, 0.4, 0.5, 0.6])
    assert spread([0.0, 0.0, 0.9], 0.2, 0, 1) == pytest.approx([0.0, 0.2, 0.9])
    assert spread([1.0, 1.0, 1.0], 0.2, 0, 1) == pytest.approx([0.6, 0.8, 1.0])
    assert spread([0.5] * 5, 0.5, 0, 1) == pytest.approx([0, 0.5, 1, 1.5, 2])  # more than fit: below one another still


def test_every_encoding_has_a_family():
    found = {name: encoding_family(name) for name in list_encodings()}
    assert set(found.values()) | {"embedding", "several"} == set(FAMILIES)
    known = {
        "none": "no position",
        "bias": "bias",
        "lookhere": "bias",
        "shaw": "relative vectors",
        "irpe": "relative vectors",
        "rope_mixed": "rotation",
        "pope": "rotation",
        "liere": "rotation",
        "pape": "features",
    }
    assert {name: found[name] for name in known} == known
    assert encoding_family("none", "learned") == encoding_family(None, "sincos") == "embedding"
    assert encoding_family(["bias", "rope"]) == encoding_family("rope", "learned") == "several"
    assert encoding_family({"name": "rope", "scaling": "yarn"}) == "rotation"
    with pytest.raises(ValueError, match="did you mean 'rope'"):
        encoding_family("rop")


def test_colours_are_told_apart_by_lightness_or_hue_under_dichromacy():
    """Under each of the two common colour blindnesses (Viénot, Brettel and Mollon, 1999), in linear RGB."""
    from matplotlib.colors import to_rgb

    kept = {"protan": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
            "deutan": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0))}  # fmt: skip
    for matrix in kept.values():
        seen = []
        for colour in FAMILIES.values():
            linear = [part**2.2 for part in to_rgb(colour)]
            seen.append([max(0.0, sum(a * b for a, b in zip(row, linear, strict=True))) ** (1 / 2.2) for row in matrix])
        for index, one in enumerate(seen):
            for other in seen[:index]:
                assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 0.1
