"""The frequencies of rotary encodings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from vit_rpe.viz.plots.asked import layers_of
from vit_rpe.viz.plots.canvas import head_bar, head_colours, new_figure
from vit_rpe.viz.recording.recording import Recording
from vit_rpe.viz.recording.rotation import rotation_frequencies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "osD^"


def plot_frequencies(seen: Recording, *, layers: Sequence[int] | None = None) -> Figure:
    """One panel per layer (one in all where the layers agree): a dot per channel pair, a colour per head.

    Two axes: radians per column over radians per row. Otherwise: radians per step of each axis over the pair's number.

    Raises:
        ValueError: no such layer, or layers that do not rotate.
    """
    found = []
    for layer in layers_of(seen, layers):
        rotation = seen.call(layer).terms.rotate_q
        if rotation is None:
            raise ValueError(f"layer {layer} does not rotate its queries and keys: it has no frequencies")
        found.append((f"layer {layer}", rotation_frequencies(rotation, seen.grids(layer)[0]).cpu()))
    if all(torch.equal(values, found[0][1]) for _, values in found):
        found = [("every layer" if len(found) > 1 else found[0][0], found[0][1])]
    columns = min(4, len(found))
    rows = math.ceil(len(found) / columns)
    two, heads = found[0][1].shape[1] == 2, max(len(values) for _, values in found)
    figure = new_figure(max(5.5, 2.9 * columns + 1.2), 2.7 * rows + 0.7)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for panel in axes.flat[len(found) :]:
        panel.set_visible(False)
    for place, (name, values) in enumerate(found):
        panel = axes.flat[place]
        for head, frequencies in enumerate(values.numpy()):
            colour = head_colours(heads)[head]
            if two:
                panel.scatter(frequencies[1], frequencies[0], s=14, alpha=0.8, color=colour)
                continue
            for axis, steps in enumerate(frequencies):
                marker = _MARKERS[axis % len(_MARKERS)]
                label = f"axis {axis}" if head == 0 else None
                panel.plot(steps, marker=marker, markersize=3, linewidth=0.8, color=colour, label=label)
        if two:
            panel.set_aspect("equal")  # a turn along a row is as long as one along a column
        panel.set_title(name if len(values) > 1 else f"{name}, all heads", fontsize=9)
        lowest = place + columns >= len(found)  # nothing is drawn below it
        panel.tick_params(labelsize=7, labelbottom=lowest)
        if lowest:
            panel.set_xlabel("radians per column" if two else "channel pair", fontsize=8)
        if place % columns == 0:
            panel.set_ylabel("radians per row" if two else "radians per step", fontsize=8)
        panel.grid(alpha=0.3)
    if not two and found[0][1].shape[1] > 1:
        axes.flat[0].legend(fontsize=7)
    if heads > 1:
        head_bar(figure, axes, heads)
    figure.suptitle("rotation: angle of each channel pair from one token to the next", fontsize=10)
    return figure
