"""Attention drawn over the pixels the model saw.

Legend: B images, L layers, H heads, C channels, P grid tokens, h and w grid rows and columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from vit_rpe.checks import check_choice
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz.plots.asked import asked_of, heads_of, image_of, layer_of, layers_of, names_of, pixels_of
from vit_rpe.viz.plots.canvas import new_figure, panels
from vit_rpe.viz.plots.paint import (
    as_picture,
    hint_patches,
    outline,
    overlay,
    share_bar,
    times_bar,
    times_uniform,
)
from vit_rpe.viz.recording.query import Query, as_query, query_token
from vit_rpe.viz.recording.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEARLY_UNIFORM = 2.0
"""The power of two of the uniform share up to which a map of position alone is drawn as multiples of it."""


def plot_images(
    seen: Recording,
    pixels: Tensor,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    query: Query = "mean",
    names: Sequence[str] | None = None,
) -> Figure:
    """One row per image: the image, the mean over heads, every head.

    Args:
        seen: a recording of these images.
        pixels: (B, C, height, width) in 0..1, one or three channels, exactly what the model saw before normalisation.
        layer: number of the layer.
        heads: which heads; default all.
        query: whose attention; see :meth:`Recording.attention`.
        names: of the images.

    Raises:
        ValueError: no such layer, head or query, or pixels or names that are not those of the recorded images.
    """
    layer, pixels = layer_of(seen, layer), pixels_of(seen, pixels)
    grid, query = image_grid(seen, layer), asked_of(seen, layer, query)
    weights = seen.attention(layer, query=query)
    (chosen,) = heads_of(seen, [layer], heads)
    rows = [
        [("image", None), ("mean of heads", weights[index].mean(dim=0)[grid.num_prefix :])]
        + [(f"head {head}", weights[index, head][grid.num_prefix :]) for head in chosen]
        for index in range(len(pixels))
    ]
    labels = names_of(names, len(pixels))
    title = f"{layer_label(seen, layer)}: attention of {query_text(query)}"
    marked = [marked_patch(seen, query, grid)] * len(rows)
    return plot_overlays(pixels, rows, grid, row_labels=labels, title=title, marked=marked)


def plot_layers(
    seen: Recording,
    pixels: Tensor,
    *,
    image: int = 0,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    query: Query = "mean",
    maps: str = "attention",
) -> Figure:
    """One row per layer: the image, then one column per head.

    Args:
        pixels: (B, C, height, width) in 0..1.
        image: which of the images.
        layers, heads: which; default all.
        maps: ``"attention"``, ``"content"``, ``"position"`` or ``"gradient_weighted"``.

    Raises:
        ValueError: another kind of map, no such image, layer, head or query, or pixels of other images.
    """
    check_choice("maps", maps, _MAPS)
    pixels, image, query = pixels_of(seen, pixels), image_of(seen, image), as_query(query)
    numbers = layers_of(seen, layers)
    rows = []
    for layer, chosen in zip(numbers, heads_of(seen, numbers, heads), strict=True):
        grid = image_grid(seen, layer)
        weights = getattr(seen, maps)(layer, query=asked_of(seen, layer, query))[image, :, grid.num_prefix :]
        rows.append([("image", None)] + [(f"head {head}", weights[head]) for head in chosen])
    title = f"{_MAPS[maps]} of {query_text(query)}"
    chosen_pixels = pixels[image : image + 1].expand(len(rows), -1, -1, -1)
    labels = [layer_label(seen, layer) for layer in numbers]
    marked = [None if seen.pools(layer) else marked_patch(seen, query, image_grid(seen, layer)) for layer in numbers]
    compared = [maps == "position"] * len(rows)
    return plot_overlays(chosen_pixels, rows, grid, row_labels=labels, title=title, marked=marked, compared=compared)


_MAPS = {
    "attention": "attention",
    "content": "attention without position",
    "position": "position alone",
    "gradient_weighted": "gradient-weighted attention",
}


def plot_overlays(
    pixels: Tensor,
    rows: Sequence[Sequence[tuple[str, Tensor | None]]],
    grid: TokenGrid,
    *,
    row_labels: Sequence[str],
    title: str,
    marked: Sequence[tuple[int, ...] | None] = (),
    compared: Sequence[bool] = (),
    without_query: bool = False,
) -> Figure:
    """Maps over images, panel by panel; each panel is scaled from 0 to its own largest value, written below it.

    Args:
        pixels: (rows, C, height, width) in 0..1.
        rows: per row, panels as (title, values (P,)); None draws the image alone.
        grid: of the values.
        row_labels: one per row, of one line or two.
        marked: per row, the grid position of the query, which is outlined, or None; default: none anywhere.
        compared: per row, whether values are drawn as multiples of the uniform share, on one scale, where all of them
            are so near to it (:data:`NEARLY_UNIFORM`) that they would look the same everywhere; default: no.
        without_query: leave the query's own share out of the colours and write it below.
    """
    columns = max(map(len, rows))
    shape = pixels.shape[-2] / pixels.shape[-1]
    compared = _compared(rows, compared)
    figure = new_figure(max(4.6, 1.35 * columns + 1.3), (1.3 * shape + 0.26) * len(rows) + 0.6)
    axes = panels(figure, len(rows), columns)
    limit = _limit([values for row, ratio in zip(rows, compared, strict=True) if ratio for _, values in row])
    for index, row in enumerate(rows):
        picture = as_picture(pixels[index])
        place = marked[index] if marked else None
        for column, (name, values) in enumerate(row):
            panel = axes[index, column]
            if values is None:
                panel.imshow(picture, cmap="gray", vmin=0, vmax=1)
                hint_patches(panel, picture, grid)
            elif compared[index]:
                ratios = times_uniform(values).reshape(grid.size)
                overlay(panel, picture, ratios, limit=limit)
                below = f"{_times(float(ratios.min()))} to {_times(float(ratios.max()))}"
                panel.set_xlabel(below, fontsize=6.5, labelpad=2)
            else:
                shown, below = _shown(values.reshape(grid.size), place if without_query else None)
                overlay(panel, picture, shown)
                panel.set_xlabel(below, fontsize=6.5, labelpad=2)
            if place is not None:
                outline(panel, picture, grid, place)
            if name and column >= max(map(len, rows[:index]), default=0):  # layers may have more heads than the first
                panel.set_title(name, fontsize=9)
        for panel in axes[index, len(row) :]:
            panel.set_visible(False)
        lines = [shorten(line) for line in row_labels[index].split("\n")]
        small = len(lines) > 1 or len(lines[0]) > 15
        axes[index, 0].set_ylabel("\n".join(lines), fontsize=6.5 if small else 9)
    both = any(compared) and not all(compared)
    shares = [index for index, ratio in enumerate(compared) if not ratio]
    ratios_at = [index for index, ratio in enumerate(compared) if ratio]
    if shares:
        where = axes[shares] if both else axes
        share_bar(figure, where, min(1.0, 2.0 / len(shares) + 0.2))
    if ratios_at:
        where = axes[ratios_at] if both else axes
        times_bar(figure, where, limit, min(1.0, 2.0 / len(ratios_at) + 0.2))
    figure.suptitle(title, fontsize=10)
    return figure


def percent(share: float) -> str:
    """``0.0123`` as ``1.2 %``."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def _shown(values: Tensor, query: tuple[int, ...] | None) -> tuple[Tensor, str]:
    """What is coloured, and what is written below it; the share of ``query`` is written only."""
    if query is None or values.numel() == 1:
        return values, f"to {percent(float(values.max()))}"
    own = float(values[query])
    others = values.clone()
    others[query] = 0
    others[query] = others.max()
    return others, f"itself {percent(own)}, others to {percent(float(others.max()))}"


def _times(power: float) -> str:
    return f"{2**power:.2g}x" if power > -10 else "0x"


def _compared(rows: Sequence[Sequence[tuple[str, Tensor | None]]], asked: Sequence[bool]) -> list[bool]:
    """Which rows are compared with the uniform share: those asked for, where nothing of them stands out by itself."""
    asked = asked or [False] * len(rows)
    maps = [values for row, ask in zip(rows, asked, strict=True) if ask for _, values in row if values is not None]
    near = all(float(times_uniform(values).max()) <= NEARLY_UNIFORM for values in maps)
    return [ask and near for ask in asked]


def _limit(values: Sequence[Tensor | None]) -> float:
    """The power of two at which the colours of comparisons end: at least 1, so that what is nearly uniform looks so."""
    return max([1.0, *(float(times_uniform(one).max()) for one in values if one is not None)])


def image_grid(seen: Recording, layer: int) -> TokenGrid:
    """The grid of a layer whose tokens lie on an image.

    Raises:
        ValueError: they do not (a sequence, windows, or tokens dropped in training).
    """
    grid = seen.map_grid(layer)
    if grid.ndim != 2:
        raise ValueError(f"layer {layer} does not attend over a whole image: its keys lie on {grid.size}")
    return grid


_HOLDER = re.compile(r"(\.(attn|attention|self_attn|self|self_attention))+$")


def layer_label(seen: Recording, layer: int) -> str:
    """What a layer is called: by its number; by its module too where layers see different things."""
    numbered = f"layer {layer % len(seen)}"
    sights = [seen.sights.get(name) for name in seen.names]
    if all(sight == sights[0] for sight in sights):
        return numbered
    pools = " pools" if seen.pools(layer) else ""
    return f"{layer % len(seen)} {_HOLDER.sub('', seen.names[layer])}{pools}"


def query_text(query: Query) -> str:
    """How titles call a query."""
    if query == "mean":
        return "all patches (mean)"
    if query == "class":
        return "the class token"
    return f"token {query}" if isinstance(query, int) else "patch (" + ", ".join(map(str, query)) + ")"


def shorten(text: str, length: int = 22) -> str:
    """At most ``length`` characters, the middle left out; dollar signs do not start a formula."""
    short = text if len(text) <= length else text[: length // 2 - 1] + "…" + text[-(length // 2) :]
    return short.replace("$", r"\$")


def marked_patch(seen: Recording, query: Query, grid: TokenGrid) -> tuple[int, ...] | None:
    """Grid position of a query that is one patch; None for a prefix token or a mean."""
    if isinstance(query, str):
        return None
    patch = query_token(query, grid, has_class_token=seen.has_class_token) - grid.num_prefix
    return None if patch < 0 else tuple(int(at) for at in np.unravel_index(patch, grid.size))
