"""LookHere, arXiv 2405.13985; names as in its code, github.com/GreenCUBIC/lookhere.

A file holds ``weights`` and ``config``: which way heads look, and slopes. There is no trace of the image size and the
number of heads in it: 224 pixels and 12 heads unless they are given. The bias is rounded to bfloat16 there, so it is
here, and the classifier has two layers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from timm.layers import to_2tuple

from vit_rpe.encodings import Spec, parse_specs
from vit_rpe.models.exchange.parts import ratio_of
from vit_rpe.models.exchange.published.found import Found, vision_transformer
from vit_rpe.models.exchange.weights import unwrap

NAME = "LookHere"
MARK = re.compile(r"^head\.fc1\.weight$")
VIEWS = {
    12: {"halves-none": 180, "corners-triangles-none": 90, "eighths1-eighths2-none": 45},
    6: {"halves-none": 180, "corners-none": 90, "eighths1-none": 45},
}
"""Angle of view by the number of heads and the name that the published code gives to their directions."""


def read(content: Mapping[str, Any], rpe: Spec | Sequence[Spec] | None, kwargs: Mapping[str, Any]) -> Found:
    """The model of a file.

    Raises:
        ValueError: no ``config`` and no ``rpe`` in its place, directions or slopes that are not ours, an embedding.
    """
    weights = unwrap(content.get("weights", content))
    if "pos_embed" in weights:
        raise ValueError(f"this model has the classifier of {NAME} and an embedding, which {NAME} has not")
    kernel = weights["patch_embed.proj.weight"]
    heads = int(kwargs.get("num_heads", 12))
    if kernel.shape[0] % heads != 0:
        raise ValueError(f"{heads} heads do not divide the width {kernel.shape[0]} of the weights: say num_heads=")
    size = to_2tuple(kwargs.get("img_size", 224))
    hidden = weights["head.fc1.weight"].shape[0]
    return vision_transformer(
        weights,
        _spec(content, heads, rpe),
        (size[0] // kernel.shape[2], size[1] // kernel.shape[3]),
        num_heads=heads,
        norm_eps=1e-5,
        num_classes=weights["head.fc2.weight"].shape[0],
        head_mlp_ratio=ratio_of(hidden, kernel.shape[0]),
    )


def _spec(content: Mapping[str, Any], heads: int, rpe: Spec | Sequence[Spec] | None) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if rpe is not None:
        given = next((dict(spec) for spec in parse_specs(rpe) if spec["name"] == "lookhere"), {"name": "lookhere"})
    config = content.get("config")
    if not isinstance(config, Mapping):
        if given:
            return given
        raise ValueError(
            f"a file of {NAME} has weights and config, and this one has no config: say its angle, rpe={{'name': "
            "'lookhere', 'fov': 180, 'rounded': True}, or give {'weights': ..., 'config': ...}"
        )
    directions = config["head_directions"]
    if isinstance(directions, Sequence) and not isinstance(directions, str) and len(set(directions)) == 1:
        directions = directions[0]
    known = VIEWS.get(heads, {})
    if not isinstance(directions, str) or directions not in known:
        raise ValueError(
            f"{NAME} with {heads} heads and head_directions={directions!r} is not ours, which knows "
            + "; ".join(f"{count} heads with {', '.join(views)}" for count, views in VIEWS.items())
        )
    plain = {"distance": "linear", "fill_with": "inf", "global_slope": 1.0, "layer_slopes": (1.5, 0.5)}
    for key, ours in plain.items():
        theirs = config.get(key, ours)
        theirs = (
            tuple(float(each) for each in theirs) if isinstance(theirs, Sequence) and key == "layer_slopes" else theirs
        )
        if theirs != ours:
            raise ValueError(f"{NAME} with {key}={theirs!r} is not ours, which has {ours!r}")
    return {"name": "lookhere", "fov": known[directions], "rounded": True}
