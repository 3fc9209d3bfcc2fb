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

from vit_rpe.viz._canvas import SIGNED, new_figure, panels, with_hidden
from vit_rpe.viz.maps import by_offset, offset_range
from vit_rpe.viz.record import Recording

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
    if q.ndim == 1:
        return plot_signed(
            rows, labels, title="what position adds to the logits", axis_names=("query", "key"), extent=None
        )
    low, sizes = offset_range(q, k)
    extent = (low[1] - 0.5, low[1] + sizes[1] - 0.5, low[0] + sizes[0] - 0.5, low[0] - 0.5)
    title = "what position adds to the logits, by offset (key minus query; the query is in the centre)"
    return plot_signed(rows, labels, title=title, axis_names=("dh", "dw"), extent=extent)


def plot_signed(
    rows: Sequence[Sequence[tuple[str, Tensor]]],
    labels: Sequence[str],
    *,
    title: str,
    axis_names: tuple[str, str],
    extent: tuple[float, float, float, float] | None,
) -> Figure:
    """Panels of signed values (rows, columns) on one zero-centred scale with a colour bar; NaN is grey."""
    columns = max(map(len, rows))
    figure = new_figure(1.35 * columns + 1.6, 1.35 * len(rows) + 0.9)
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
    corner = axes[-1, 0]
    if extent is not None:
        for set_ticks, ends in ((corner.set_xticks, extent[:2]), (corner.set_yticks, (extent[3], extent[2]))):
            first, last = ends[0] + 0.5, ends[1] - 0.5
            set_ticks(sorted({first, 0, last}))
        corner.tick_params(labelsize=7, length=2)
    corner.set_xlabel(axis_names[1], fontsize=8)
    corner.set_ylabel(f"{labels[-1]}\n{axis_names[0]}", fontsize=9)
    figure.colorbar(drawn, ax=axes, shrink=min(1.0, 3.0 / len(rows) + 0.2), aspect=25, label="added to the logit")
    figure.suptitle(title, fontsize=10)
    return figure


def largest(values: Any) -> float:
    """The largest magnitude among finite values, or 1 where all are 0, so that a constant picture is plain."""
    limit = 0.0
    for value in values:
        finite = value[torch.isfinite(value)]
        limit = max(limit, float(finite.abs().max()) if finite.numel() else 0.0)
    return limit if limit > 0 else 1.0
