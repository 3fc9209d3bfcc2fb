"""Pictures over all layers at once: rollout, attention distance, and content against position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING

from torch import Tensor

from vit_rpe.viz.plots.asked import asked_of, heads_of, image_of, layer_of, layers_of, names_of, pixels_of
from vit_rpe.viz.plots.canvas import head_bar, head_colours, new_figure, whole_numbers
from vit_rpe.viz.plots.overlay import (
    image_grid,
    layer_label,
    marked_patch,
    plot_overlays,
    query_text,
)
from vit_rpe.viz.recording.query import Query, as_query
from vit_rpe.viz.recording.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_rollout(
    seen: Recording, pixels: Tensor, *, query: Query = "mean", names: Sequence[str] | None = None
) -> Figure:
    """Attention rollout through all layers over each image; see :func:`vit_rpe.viz.rollout`.

    Args:
        pixels: (B, C, height, width) in 0..1.
        query: whose rollout.
        names: of the images.

    Raises:
        ValueError: no such query, or pixels or names that are not those of the recorded images.
    """
    pixels, query = pixels_of(seen, pixels), as_query(query)
    found = seen.rollout(query)
    grid = image_grid(seen, 0)
    prefix = found.weights.shape[1] - grid.num_patches
    labels = names_of(names, len(pixels))
    rows = [[("image", None), ("rollout", found.weights[index, prefix:])] for index in range(len(pixels))]
    title = f"rollout of {query_text(query)}"
    if found.approximate is not None:
        title = "\n".join([title, *wrap(f"approximate: {found.approximate}", 48)])
    marked = [marked_patch(seen, query, replace(grid, num_prefix=prefix))] * len(rows)
    return plot_overlays(pixels, rows, grid, row_labels=labels, title=title, marked=marked, without_query=True)


def plot_distance(seen: Recording, *, layers: Sequence[int] | None = None) -> Figure:
    """Mean attention distance of every head over the layers, averaged over the recorded images, in patches.

    Layers that pool have no place on the image and are left out.

    Raises:
        ValueError: no such layer, or none besides them.
    """
    numbers = [layer for layer in layers_of(seen, layers) if not seen.pools(layer)]
    if not numbers:
        raise ValueError("layers that pool have no distance: their queries are nowhere on the image")
    found = [seen.distance(layer).mean(dim=0).cpu() for layer in numbers]
    most = max(map(len, found))
    figure = new_figure(max(5, 0.45 * len(numbers) + 2.5), 3.4)
    colours = head_colours(most)
    panel = figure.subplots()
    for place, distance in zip(numbers, found, strict=True):
        panel.scatter([place] * len(distance), distance, s=22, alpha=0.75, color=colours[: len(distance)])
    panel.plot(numbers, [float(distance.mean()) for distance in found], color="0.4", linewidth=1, label="mean of heads")
    panel.set_xlim(min(numbers) - 0.5, max(numbers) + 0.5)
    whole_numbers(panel.xaxis)
    panel.set_xlabel("layer")
    panel.set_ylabel(f"mean attention distance ({'patches' if seen.image else 'tokens'})")
    panel.set_ylim(0, 1.1 * max(float(distance.max()) for distance in found) or 1)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, loc="lower right")
    if most > 1:
        head_bar(figure, panel, most)
    panel.set_title("how far each head looks (one dot per head)", fontsize=10)
    return figure


def plot_split(
    seen: Recording,
    pixels: Tensor,
    *,
    image: int = 0,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    query: Query = "mean",
) -> Figure:
    """One layer's attention, the same with position removed, and position alone; the image, then one column per head.

    Position alone is the map where every token carries the mean content of the image.

    Args:
        pixels: (B, C, height, width) in 0..1.
        image: which of the images.
        layer: number of the layer.
        heads: which; default all.
        query: whose attention.

    Raises:
        ValueError: no such image, layer, head or query, or pixels of other images.
    """
    pixels, image, layer = pixels_of(seen, pixels), image_of(seen, image), layer_of(seen, layer)
    grid = image_grid(seen, layer)
    query = asked_of(seen, layer, query)
    (chosen,) = heads_of(seen, [layer], heads)
    rows = []
    for maps in (seen.attention, seen.content, seen.position):
        weights = maps(layer, query=query)[image, :, grid.num_prefix :]
        rows.append([("image", None)] + [(f"head {head}", weights[head]) for head in chosen])
    return plot_overlays(
        pixels[image : image + 1].expand(3, -1, -1, -1),
        rows,
        grid,
        row_labels=["attention", "content only", "position only"],
        title=f"{layer_label(seen, layer)}: content and position, {query_text(query)}",
        marked=[marked_patch(seen, query, grid)] * len(rows),
        compared=[False, False, True],
    )
