"""Attention drawn over the pixels the model saw.

Legend: B images, L layers, H heads, C channels, P grid tokens, h and w grid rows and columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from vit_rpe.checks import check_choice
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz.plots.asked import asked_of, heads_of, image_of, layer_of, layers_of, names_of, pixels_of
from vit_rpe.viz.plots.canvas import ATTENTION, colour_scale, new_figure, panels
from vit_rpe.viz.recording.query import Query, as_query, query_token
from vit_rpe.viz.recording.recording import Recording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    return plot_overlays(chosen_pixels, rows, grid, row_labels=labels, title=title, marked=marked)


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
) -> Figure:
    """Maps over images, panel by panel; each panel is scaled from 0 to its own largest value, written below it.

    Args:
        pixels: (rows, C, height, width) in 0..1.
        rows: per row, panels as (title, values (P,)); None draws the image alone.
        grid: of the values.
        row_labels: one per row.
        marked: per row, the grid position of the query, which is outlined, or None; default: none anywhere.
    """
    columns = max(map(len, rows))
    shape = pixels.shape[-2] / pixels.shape[-1]
    figure = new_figure(max(4.6, 1.35 * columns + 1.3), (1.3 * shape + 0.22) * len(rows) + 0.6)
    axes = panels(figure, len(rows), columns)
    for index, row in enumerate(rows):
        picture = as_picture(pixels[index])
        for column, (name, values) in enumerate(row):
            panel = axes[index, column]
            if values is None:
                panel.imshow(picture, cmap="gray", vmin=0, vmax=1)
            else:
                overlay(panel, picture, values.reshape(grid.size))
                panel.set_xlabel(f"max {float(values.max()):.2g}", fontsize=6.5, labelpad=2)
            place = marked[index] if marked else None
            if place is not None:
                outline(panel, picture, grid, place)
            if name and column >= max(map(len, rows[:index]), default=0):  # layers may have more heads than the first
                panel.set_title(name, fontsize=9)
        for panel in axes[index, len(row) :]:
            panel.set_visible(False)
        label = shorten(row_labels[index])
        axes[index, 0].set_ylabel(label, fontsize=9 if len(label) < 16 else 6.5)
    bar = figure.colorbar(colour_scale(ATTENTION, 1), ax=axes, shrink=min(1.0, 2.0 / len(rows) + 0.2), aspect=25)
    bar.set_ticks([0, 1], labels=["0", "max"], fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def overlay(panel: Axes, picture: Any, values: Tensor) -> None:
    """Draw values (h, w) over a picture (height, width) or (height, width, 3); constant values give a plain colour."""
    height, width = picture.shape[:2]
    gray = picture if picture.ndim == 2 else picture @ np.array([0.299, 0.587, 0.114])
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    # Eight bits: a panel keeps its own copy, and there may be hundreds.
    panel.imshow(np.rint(255 * gray).astype(np.uint8), cmap="gray", vmin=0, vmax=255, extent=extent)
    top = float(values.max())
    panel.imshow(
        values.detach().float().cpu().numpy(),
        cmap=ATTENTION,
        vmin=0,
        vmax=top if top > 0 else 1,
        alpha=0.7,
        extent=extent,
        interpolation="nearest",
    )


def outline(panel: Axes, picture: Any, grid: TokenGrid, place: tuple[int, ...]) -> None:
    """A frame around the patch at ``place`` of a picture (height, width, ...)."""
    from matplotlib.patches import Rectangle

    step_h, step_w = picture.shape[0] / grid.size[0], picture.shape[1] / grid.size[1]
    corner = (place[1] * step_w - 0.5, place[0] * step_h - 0.5)
    panel.add_patch(Rectangle(corner, step_w, step_h, fill=False, edgecolor="cyan", linewidth=1.5))


def as_picture(pixels: Tensor) -> Any:
    """(C, height, width) in 0..1 as an array (height, width) for one channel or (height, width, 3)."""
    array = pixels.detach().float().clamp(0, 1).cpu().numpy()
    return array[0] if array.shape[0] == 1 else array.transpose(1, 2, 0)


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
