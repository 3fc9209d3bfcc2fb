"""Training curves from the rows of ``metrics.csv``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vit_rpe.viz.plots.canvas import new_figure, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_curves(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Loss, accuracy and learning rate over the epochs.

    Args:
        rows: one mapping per epoch with ``epoch``, ``train_loss``, ``test_loss``, ``train_accuracy``,
            ``test_accuracy`` (0..1) and ``lr``.

    Raises:
        ValueError: no rows.
    """
    if not rows:
        raise ValueError("metrics.csv has no rows yet: nothing to draw")
    figure = new_figure(11, 3.4)
    loss, accuracy, rate = figure.subplots(1, 3)
    epochs = [row["epoch"] for row in rows]
    marker = "o" if len(rows) < 25 else None
    for panel, what, factor, label in ((loss, "loss", 1, "loss"), (accuracy, "accuracy", 100, "accuracy (%)")):
        for part, colour in (("train", "tab:blue"), ("test", "tab:orange")):
            values = [factor * row[f"{part}_{what}"] for row in rows]
            panel.plot(epochs, values, label=part, color=colour, marker=marker, markersize=3)
        panel.set_ylabel(label)
        panel.legend()
    best = max(range(len(rows)), key=lambda index: rows[index]["test_accuracy"])
    accuracy.set_title(f"best test {100 * rows[best]['test_accuracy']:.2f} % at epoch {epochs[best]:g}", fontsize=10)
    rate.plot(epochs, [row["lr"] for row in rows], color="tab:green", marker=marker, markersize=3)
    rate.set_ylabel("learning rate")
    for panel in (loss, accuracy, rate):
        panel.set_xlabel("epoch")
        whole_numbers(panel.xaxis)
        panel.grid(alpha=0.3)
    return figure
