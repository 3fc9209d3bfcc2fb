"""Results beyond the length, size or place a model was trained at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vit_rpe.checks import check_choice
from vit_rpe.viz.plots.canvas import check_rows, new_figure, plain_ticks
from vit_rpe.viz.plots.families import in_panels, looks
from vit_rpe.viz.plots.labels import label_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ACROSS = {
    "length": "context length over the trained length",
    "size": "image side over the trained side",
    "shift": "shift of the image, share of its side",
}
_UP = {"bits_per_character": "bits per character (lower is better)", "accuracy": "accuracy (%)"}


def plot_extrapolation(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """One panel for each thing that was changed, one curve for each model.

    Args:
        rows: mappings with ``label`` (of the curve), ``changed`` (length, size or shift), ``factor``, ``measure``
            (bits_per_character or accuracy, 0..1) and ``result``.

    Raises:
        ValueError: no rows, one without a key, or with a word of neither kind.
    """
    if not rows:
        raise ValueError("nothing to draw: no result of any model")
    check_rows(rows, ("label", "changed", "factor", "measure", "result"))
    for row in rows:
        check_choice("changed", row["changed"], _ACROSS)
        check_choice("measure", row["measure"], _UP)
    changes = [name for name in _ACROSS if any(row["changed"] == name for row in rows)]
    labels = list(dict.fromkeys(row["label"] for row in rows))
    parts, look = in_panels(labels), looks(labels)
    figure = new_figure(1.5 + 5.2 * len(changes), 4.2 * len(parts))
    panels = figure.subplots(len(parts), len(changes), squeeze=False)
    for (kind, members), line in zip(parts, panels, strict=True):
        for panel, changed in zip(line, changes, strict=True):
            here = [row for row in rows if row["changed"] == changed]
            scale = 100 if here[0]["measure"] == "accuracy" else 1
            for label in members:
                points = sorted((row["factor"], scale * row["result"]) for row in here if row["label"] == label)
                if points:
                    panel.plot(*zip(*points, strict=True), markersize=4, label=label, **look[label])
            if changed != "shift":
                panel.set_xscale("log", base=2)
                factors = sorted({row["factor"] for row in here})
                plain_ticks(panel.xaxis, factors)
                panel.set_xticklabels([f"{factor:g}x" for factor in factors])
                panel.axvline(1, color="0.6", linewidth=1, linestyle=":")
            panel.set_xlabel(_ACROSS[changed])
            panel.set_ylabel(_UP[here[0]["measure"]])
            panel.set_title(kind, fontsize=9)
            panel.grid(alpha=0.3)
    label_lines(*panels.flat)
    return figure
