"""The explorer: one HTML file in which a person points at a patch and sees where it looks.

The file needs no server and no network. It holds the page, the images, and what ``payload.py`` packs; maps are computed
in the browser when they are asked for.

Legend: B images, C channels.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_rpe.attention import AttentionCall
from vit_rpe.checks import check_type
from vit_rpe.models.families import Sight
from vit_rpe.viz.explorer.packing import ALPHABET, Packer
from vit_rpe.viz.explorer.payload import (
    Rounded,
    by_image,
    by_window,
    pack_layout,
    pack_terms,
    pack_tokens,
    round_tokens,
    rounded_terms,
)
from vit_rpe.viz.page_files import as_json, fill, page_file
from vit_rpe.viz.plots.asked import layers_of, names_of, pixels_of
from vit_rpe.viz.plots.canvas import ATTENTION, SIGNED
from vit_rpe.viz.plots.overlay import as_picture, image_grid
from vit_rpe.viz.recording.parts import parts_of
from vit_rpe.viz.recording.recording import Recording

PACKAGE = "vit_rpe.viz.explorer"
SCRIPTS = ("reader.js", "attention.js", "drawing.js", "explorer.js")
FINE_NUMBERS = 2_500_000
"""Up to this many numbers q and k are kept in 16 bits, beyond it in 8, so that the file stays small."""
MOST_PAIRS = 20_000_000
"""Pairs of query and key, times heads, up to which a page offers the mean over all patches: it is computed there."""


def explorer_page(
    seen: Recording,
    pixels: Tensor,
    *,
    names: Sequence[str],
    title: str,
    captions: Sequence[str] | None = None,
    bits: int | None = None,
    layers: Sequence[int] | None = None,
) -> str:
    """The page as text, to be written in UTF-8.

    Args:
        seen: a recording of the images.
        pixels: (B, C, height, width) in 0..1, what the model saw before normalisation.
        names: of the images; shown as text, whatever they contain.
        title: of the page, for instance the model's name.
        captions: a sentence per image, for instance the predicted class.
        bits: per number of q and k, 2 to 16: fewer make the file smaller and the maps coarser; default: 16 where the
            file stays small, else 8.
        layers: which; default all.

    Raises:
        ValueError: pixels, names or captions that are not those of the recorded images, no such layer,
            layers that do not lie on one image, terms that differ between images, or such bits.
    """
    check_type("bits", bits, int | None)
    if bits is not None and not 2 <= bits <= 16:
        raise ValueError(f"bits must be 2 to 16, got {bits}")
    pixels, numbers = pixels_of(seen, pixels), layers_of(seen, layers)
    names = names_of(names, len(pixels))
    captions = [""] * len(names) if captions is None else names_of(captions, len(names), "captions")
    grid = image_grid(seen, numbers[0])
    for layer in numbers:
        if seen.map_grid(layer) != grid:
            raise ValueError(f"the explorer needs the same grid in all layers, layer {layer} has another one")
        if seen.sights.get(seen.names[layer]) is None and seen.grids(layer) != (grid, grid):
            raise ValueError(f"the explorer needs queries and keys on one grid, those of layer {layer} differ")
    common = Packer()
    packed = [{**pack_layout(common, seen, layer, grid.size), **pack_terms(common, seen, layer)} for layer in numbers]
    packers = [Packer() for _ in names]
    tokens: list[list[Any]] = [[] for _ in names]
    kept, error = bits or 16, 0.0
    for layer in numbers:
        sight, call, mean = seen.sight(layer), seen.call(layer), seen.call(layer, mean="image")
        windows = len(sight.origins)
        kept = bits or (16 if 2 * call.q.numel() * len(numbers) <= FINE_NUMBERS else 8)
        parts = {}
        for name, own, alone in (("q", call.q, mean.q), ("k", call.k, mean.k)):
            alone = by_image(alone, windows)
            even = torch.allclose(alone, alone[:, :, :1], rtol=1e-4, atol=1e-5 * float(alone.abs().max()))
            centre = alone[:, :, 0] if even else alone.mean(dim=2)
            parts[name] = round_tokens(by_image(own, windows), centre, kept)
            if not even:  # what position alone sees differs from token to token: pooled by a padded convolution
                parts[f"{name}Alone"] = round_tokens(alone, centre, kept)
        error = max(error, _largest_error(call, sight, parts["q"], parts["k"]))
        for image, packer in enumerate(packers):
            tokens[image].append({name: pack_tokens(packer, part, image, bits=kept) for name, part in parts.items()})
    cost = max(each["windows"] * each["queries"] * each["keys"] * each["heads"] for each in packed)
    data = {
        "alphabet": ALPHABET,
        "captions": captions,
        "colours": {"attention": _colours(ATTENTION), "signed": _colours(SIGNED)},
        "grid": {"rows": grid.size[0], "columns": grid.size[1], "prefix": grid.num_prefix},
        "classToken": seen.has_class_token and grid.num_prefix > 0,
        "images": [_data_url(as_picture(picture)) for picture in pixels],
        "layers": packed,
        "mean": cost <= MOST_PAIRS,
        "names": names,
        "rounding": {"bits": kept, "error": error},
        "tokens": tokens,
    }
    blocks = [_block(packer, f"block-{number}") for number, packer in enumerate([common, *packers])]
    return fill(
        page_file(PACKAGE, "explorer.html"),
        title=html.escape(title),
        style=page_file(PACKAGE, "explorer.css"),
        data=as_json(data),
        blocks="\n".join(blocks),
        scripts="\n".join(page_file(PACKAGE, name) for name in SCRIPTS),
    )


@torch.no_grad()
def _largest_error(call: AttentionCall, sight: Sight, q: Rounded, k: Rounded) -> float:
    """By how much any weight, of attention or of content, differs where all numbers are the rounded ones."""
    dtype, windows = call.q.dtype, len(sight.origins)
    rounded = call._replace(q=by_window(q.values().to(dtype), windows), k=by_window(k.values().to(dtype), windows))
    largest = 0.0
    for (exact, _, _), (found, _, _) in zip(parts_of(call, sight), parts_of(rounded, sight), strict=True):
        found = found._replace(position=rounded_terms(found.terms))
        for own, other in ((exact.weights(), found.weights()), (exact.content_weights(), found.content_weights())):
            largest = max(largest, float((own - other).abs().max()))
    return largest


def _block(packer: Packer, name: str) -> str:
    text, length = packer.text()
    return f'<script type="application/octet-stream" id="{name}" data-length="{length}">{text}</script>'


def _colours(name: str) -> list[int]:
    """Red, green, blue 0..255 of 256 steps of a matplotlib colour map, one after the other, without matplotlib."""
    return json.loads(page_file(PACKAGE, "colours.json"))[name]


def _data_url(picture: np.ndarray) -> str:
    """PNG for small images, whose pixels can be seen one by one, else JPEG."""
    from PIL import Image

    image = Image.fromarray(np.rint(picture * 255).astype(np.uint8))
    kind = "png" if max(image.size) <= 96 else "jpeg"
    file = io.BytesIO()
    image.save(file, kind, quality=88)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
