"""The encoding itself: what position adds to the logits, by offset or pair by pair.

Pictures by offset have the query in their centre and show **key minus query** (the code's offsets are query minus key).

Legend: H heads, h and w grid rows and columns, n axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz.plots.asked import heads_of, layers_of
from vit_rpe.viz.plots.canvas import FADED, SIGNED, new_figure, panels, with_hidden
from vit_rpe.viz.plots.overlay import layer_label, shorten
from vit_rpe.viz.recording.maps import picture_range
from vit_rpe.viz.recording.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FADES = 9.0
"""A logit this much below the largest of its head is not coloured: a start that hides far keys for good (``impulse``)
would make everything else pale."""
_TIMES = 8000
"""e^9, rounded down."""
Extent = tuple[float, float, float, float]


def plot_bias(seen: Recording, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> Figure:
    """What position adds to the logits, one row per layer and one column per head, with one colour scale.

    Two axes: an image over (dh, dw) with the query in the centre. One axis: the matrix of all pairs, which is Toeplitz
    for an encoding that is relative. Hidden keys are grey. Encodings that depend on q and k are shown for the mean
    content of the recorded images.

    Raises:
        ValueError: no such layer or head, or a grid of three axes.
    """
    numbers = [layer for layer in layers_of(seen, layers) if not seen.pools(layer)]
    if not numbers:
        raise ValueError("layers that pool have no offsets: their queries are nowhere on the image")
    rows, extents = [], []
    for layer, chosen in zip(numbers, heads_of(seen, numbers, heads), strict=True):
        q, k = seen.grids(layer)
        if q.ndim > 2:
            raise ValueError(f"the bias is drawn for one or two axes, got the grid {q.size}")
        if q.ndim > 1:
            values, extent = seen.by_offset(layer), _extent(q, k)
        else:
            values, extent = seen.bias(layer), None
            values = values.masked_fill(values.isinf(), float("nan"))
        rows.append([(f"head {head}", values[head].cpu()) for head in chosen])
        extents.append(extent)
    labels = [layer_label(seen, layer) for layer in numbers]
    what = "what position adds to the logits"
    if any(_depends_on_content(seen, layer) for layer in numbers):
        what += " (for the mean content)"
    where = (
        "row query, column key"
        if extents[0] is None
        else "row dh, column dw, key minus query in patches (dot: the query)"
    )
    return plot_signed(rows, labels, title=f"{what}\n{where}", extents=extents)


def _extent(q: TokenGrid, k: TokenGrid) -> Extent:
    low, sizes = picture_range(q, k)
    return low[1] - 0.5, low[1] + sizes[1] - 0.5, low[0] + sizes[0] - 0.5, low[0] - 0.5


def _depends_on_content(seen: Recording, layer: int) -> bool:
    terms = seen.some_terms(layer)
    return terms.moves or bool(terms.on_query or terms.on_key or terms.features)


def plot_signed(
    rows: Sequence[Sequence[tuple[str, Tensor]]],
    labels: Sequence[str],
    *,
    title: str,
    extents: Sequence[Extent | None],
) -> Figure:
    """Panels of signed values (rows, columns) on one zero-centred scale; NaN is grey, what is faded light grey.

    Args:
        rows: per row, panels as (title, values).
        labels: one per row.
        extents: of each row; left, right, bottom and top in offsets, as matplotlib takes it; None for plain matrices.
    """
    columns = max(map(len, rows))
    shape = max(values.shape[0] / values.shape[1] for row in rows for _, values in row)
    figure = new_figure(max(4.6, 1.35 * columns + 1.6), max(1.3 * shape, 0.5) * len(rows) + 0.9)
    figure.set_layout_engine("constrained", w_pad=0.09)  # row labels stick out where ticks are narrow
    axes = panels(figure, len(rows), columns)
    rows = [[(name, faded(values)) for name, values in row] for row in rows]
    limit = colour_range(values for row in rows for _, values in row)
    if any(bool((values == -torch.inf).any()) for row in rows for _, values in row):
        title += f"\nlight grey: {FADES:g} or more below the head's largest, a weight below 1/{_TIMES:,}"
    drawn: Any = None
    for index, row in enumerate(rows):
        for column, (name, values) in enumerate(row):
            panel = axes[index, column]
            drawn = panel.imshow(
                np.ma.masked_invalid(values.float().nan_to_num(nan=torch.nan, neginf=-1e30).numpy()),
                cmap=with_hidden(SIGNED, FADED),
                vmin=-limit,
                vmax=limit,
                extent=extents[index],
                interpolation="nearest",
            )
            if column >= max(map(len, rows[:index]), default=0):  # layers may have more heads than the first
                panel.set_title(name, fontsize=9)
        for panel in axes[index, len(row) :]:
            panel.set_visible(False)
        axes[index, 0].set_ylabel(shorten(labels[index]), fontsize=9 if len(labels[index]) < 16 else 6.5)
        extent = extents[index]
        if extent is not None:
            _mark_offsets(axes[index], extent, below=index + 1 == len(rows) or extent != extents[index + 1])
    figure.colorbar(drawn, ax=axes, shrink=min(1.0, 3.0 / len(rows) + 0.2), aspect=25, label="added to the logit")
    figure.suptitle(title, fontsize=10)
    return figure


def _mark_offsets(panels: Any, extent: Extent, *, below: bool) -> None:
    """Ticks at the ends and at offset 0 (``below`` the panels only where asked for), and a dot where the query is."""
    left, right, bottom, top = extent
    for panel in panels:
        panel.plot(0, 0, marker="o", markersize=2.5, color="black")
        panel.tick_params(labelsize=7, length=2)
        if below:
            panel.set_xticks(sorted({left + 0.5, 0, right - 0.5}))
    panels[0].set_yticks(sorted({top + 0.5, 0, bottom - 0.5}))


def faded(values: Tensor) -> Tensor:
    """Values more than :data:`FADES` below the largest as -inf; what is hidden stays as it is."""
    finite = values[torch.isfinite(values)]
    return values.masked_fill(values < finite.max() - FADES, -torch.inf) if finite.numel() else values


def colour_range(values: Iterable[Tensor]) -> float:
    """The largest magnitude among finite values, or 1 where all are 0, so that a constant picture is plain."""
    limit = 0.0
    for value in values:
        finite = value[torch.isfinite(value)]
        limit = max(limit, float(finite.abs().max()) if finite.numel() else 0.0)
    return limit if limit > 0 else 1.0
