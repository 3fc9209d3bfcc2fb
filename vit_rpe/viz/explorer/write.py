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
from vit_rpe.viz.explorer.packing import ALPHABET, Packer
from vit_rpe.viz.explorer.payload import Rounded, pack_terms, pack_tokens, round_tokens, rounded_terms
from vit_rpe.viz.page_files import as_json, fill, page_file
from vit_rpe.viz.plots.canvas import ATTENTION, SIGNED
from vit_rpe.viz.plots.overlay import as_picture, image_grid
from vit_rpe.viz.recording.record import Recording

PACKAGE = "vit_rpe.viz.explorer"
SCRIPTS = ("reader.js", "attention.js", "drawing.js", "explorer.js")
FINE_NUMBERS = 2_500_000
"""Up to this many numbers q and k are kept in 16 bits, beyond it in 8, so that the file stays small."""


def explorer_page(
    seen: Recording,
    pixels: Tensor,
    *,
    names: Sequence[str],
    title: str,
    captions: Sequence[str] | None = None,
    bits: int | None = None,
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

    Raises:
        ValueError: layers that do not attend over a whole image, terms that differ between images, or such bits.
    """
    if bits is not None and not 2 <= bits <= 16:
        raise ValueError(f"bits must be 2 to 16, got {bits}")
    grid = image_grid(seen, 0)
    for layer in range(len(seen)):
        if seen.grids(layer) != (grid, grid):
            raise ValueError(f"the explorer needs the same grid in all layers, layer {layer} has another one")
    common = Packer()
    terms = [pack_terms(common, seen, layer) for layer in range(len(seen))]
    packers = [Packer() for _ in names]
    tokens: list[list[Any]] = [[] for _ in names]
    kept, error = bits or 16, 0.0
    for layer in range(len(seen)):
        call, mean = seen.call(layer), seen.call(layer, mean="image")
        kept = bits or (16 if 2 * call.q.numel() * len(seen) <= FINE_NUMBERS else 8)
        q, k = (round_tokens(x, m[:, :, 0], kept) for x, m in ((call.q, mean.q), (call.k, mean.k)))
        error = max(error, _largest_error(call, q, k))
        for image, packer in enumerate(packers):
            tokens[image].append(
                {"q": pack_tokens(packer, q, image, bits=kept), "k": pack_tokens(packer, k, image, bits=kept)}
            )
    data = {
        "alphabet": ALPHABET,
        "captions": list(captions) if captions is not None else [""] * len(names),
        "colours": {"attention": _colours(ATTENTION), "signed": _colours(SIGNED)},
        "grid": {"rows": grid.size[0], "columns": grid.size[1], "prefix": grid.num_prefix},
        "classToken": seen.has_class_token,
        "images": [_data_url(as_picture(picture)) for picture in pixels],
        "names": list(names),
        "rounding": {"bits": kept, "error": error},
        "terms": terms,
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
def _largest_error(call: AttentionCall, q: Rounded, k: Rounded) -> float:
    """By how much any weight, of attention or of content, differs where all numbers are the rounded ones."""
    dtype = call.q.dtype
    rounded = call._replace(q=q.values().to(dtype), k=k.values().to(dtype), position=rounded_terms(call.terms))
    pairs = ((call.weights(), rounded.weights()), (call.content_weights(), rounded.content_weights()))
    return max(float((exact - found).abs().max()) for exact, found in pairs)


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
