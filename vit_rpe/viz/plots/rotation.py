"""The frequencies of rotary encodings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from vit_rpe.viz.plots.asked import layers_of
from vit_rpe.viz.plots.canvas import new_figure
from vit_rpe.viz.recording.recording import Recording
from vit_rpe.viz.recording.rotation import rotation_frequencies

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    figure = new_figure(max(5.5, 2.9 * columns + 1.2), 2.7 * rows + 0.7)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for panel in axes.flat[len(found) :]:
        panel.set_visible(False)
    for place, (name, values) in enumerate(found):
        panel = axes.flat[place]
        for head, frequencies in enumerate(values.numpy()):
            label = "all heads" if len(values) == 1 else f"head {head}"
            if len(frequencies) == 2:
                panel.scatter(frequencies[1], frequencies[0], s=14, alpha=0.8, label=label)
            else:
                for axis, steps in enumerate(frequencies):
                    suffix = "" if len(frequencies) == 1 else f", axis {axis}"
                    panel.plot(steps, marker="o", markersize=3, linewidth=0.8, label=label + suffix)
        two = values.shape[1] == 2
        panel.set_title(name, fontsize=9)
        lowest = place + columns >= len(found)  # nothing is drawn below it
        panel.tick_params(labelsize=7, labelbottom=lowest)
        if lowest:
            panel.set_xlabel("radians per column" if two else "channel pair", fontsize=8)
        if place % columns == 0:
            panel.set_ylabel("radians per row" if two else "radians per step", fontsize=8)
        panel.grid(alpha=0.3)
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", fontsize=7)
    figure.suptitle("rotation: angle of each channel pair from one token to the next", fontsize=10)
    return figure
