"""The encoding itself: what position adds to the logits, by offset or pair by pair.

Pictures by offset have the query in their centre and show **key minus query** (the code's offsets are query minus key).

Legend: H heads, h and w grid rows and columns, n axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vit_rpe.viz.plots.canvas import SIGNED, new_figure, panels, with_hidden
from vit_rpe.viz.recording.maps import by_offset, picture_range
from vit_rpe.viz.recording.record import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_bias(seen: Recording, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> Figure:
    """What position adds to the logits, one row per layer and one column per head, with one colour scale.

    Two axes: an image over (dh, dw) with the query in the centre. One axis: the matrix of all pairs, which is Toeplitz
    for an encoding that is relative. Hidden keys are grey. Encodings that depend on q and k are shown for the mean
    content of the recorded images.

    Raises:
        ValueError: no such layer or head, or a grid of three axes.
    """
    numbers = list(range(len(seen)) if layers is None else layers)
    rows = []
    for layer in numbers:
        q, k = seen.grids(layer)
        bias = seen.bias(layer)
        chosen = range(bias.shape[0]) if heads is None else [seen.head(layer, head) for head in heads]
        values = by_offset(bias, q, k) if q.ndim > 1 else bias.masked_fill(bias.isinf(), float("nan"))
        rows.append([(f"head {head}", values[head].cpu()) for head in chosen])
    if q.ndim > 2:
        raise ValueError(f"the bias is drawn for one or two axes, got the grid {q.size}")
    labels = [f"layer {layer % len(seen)}" for layer in numbers]
    what = "what position adds to the logits"
    if any(_depends_on_content(seen, layer) for layer in numbers):
        what += " (for the mean content)"
    if q.ndim == 1:
        return plot_signed(rows, labels, title=f"{what}\nrow query, column key", extent=None)
    low, sizes = picture_range(q, k)
    extent = (low[1] - 0.5, low[1] + sizes[1] - 0.5, low[0] + sizes[0] - 0.5, low[0] - 0.5)
    title = f"{what}\nrow dh, column dw, key minus query (dot: the query)"
    return plot_signed(rows, labels, title=title, extent=extent)


def _depends_on_content(seen: Recording, layer: int) -> bool:
    terms = seen.call(layer).terms
    return terms.rotate_q is not None or bool(terms.on_query or terms.on_key or terms.features)


def plot_signed(
    rows: Sequence[Sequence[tuple[str, Tensor]]],
    labels: Sequence[str],
    *,
    title: str,
    extent: tuple[float, float, float, float] | None,
) -> Figure:
    """Panels of signed values (rows, columns) on one zero-centred scale with a colour bar; NaN is grey.

    Args:
        rows: per row, panels as (title, values).
        labels: one per row.
        extent: left, right, bottom and top in offsets, as matplotlib takes it; None for plain matrices.
    """
    columns = max(map(len, rows))
    shape = rows[0][0][1].shape[0] / rows[0][0][1].shape[1]
    figure = new_figure(max(4.6, 1.35 * columns + 1.6), max(1.3 * shape, 0.5) * len(rows) + 0.9)
    figure.set_layout_engine("constrained", w_pad=0.09)  # row labels stick out where ticks are narrow
    axes = panels(figure, len(rows), columns)
    limit = largest(value for row in rows for _, value in row)
    drawn: Any = None
    for index, row in enumerate(rows):
        for column, (name, values) in enumerate(row):
            panel = axes[index, column]
            drawn = panel.imshow(
                np.ma.masked_invalid(values.float().numpy()),
                cmap=with_hidden(SIGNED),
                vmin=-limit,
                vmax=limit,
                extent=extent,
                interpolation="nearest",
            )
            if index == 0:
                panel.set_title(name, fontsize=9)
        axes[index, 0].set_ylabel(labels[index], fontsize=9)
    if extent is not None:
        _mark_offsets(axes, extent)
    figure.colorbar(drawn, ax=axes, shrink=min(1.0, 3.0 / len(rows) + 0.2), aspect=25, label="added to the logit")
    figure.suptitle(title, fontsize=10)
    return figure


def _mark_offsets(axes: Any, extent: tuple[float, float, float, float]) -> None:
    """Ticks at the ends and at offset 0, and a dot where the query is."""
    left, right, bottom, top = extent
    for panel in axes.flat:
        panel.plot(0, 0, marker="o", markersize=2.5, color="black")
    for panel in axes[-1]:
        panel.set_xticks(sorted({left + 0.5, 0, right - 0.5}))
    for panel in axes[:, 0]:
        panel.set_yticks(sorted({top + 0.5, 0, bottom - 0.5}))
    for panel in axes.flat:
        panel.tick_params(labelsize=7, length=2)


def largest(values: Any) -> float:
    """The largest magnitude among finite values, or 1 where all are 0, so that a constant picture is plain."""
    limit = 0.0
    for value in values:
        finite = value[torch.isfinite(value)]
        limit = max(limit, float(finite.abs().max()) if finite.numel() else 0.0)
    return limit if limit > 0 else 1.0
