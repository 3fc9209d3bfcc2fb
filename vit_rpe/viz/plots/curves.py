"""Training curves from the rows of ``metrics.csv``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING

from vit_rpe.viz.plots.canvas import check_rows, new_figure, whole_numbers
from vit_rpe.viz.plots.labels import label_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_curves(rows: Sequence[Mapping[str, float]], *, held_out: str = "test") -> Figure:
    """Loss, accuracy and learning rate over the epochs.

    Args:
        rows: one mapping per epoch with ``epoch``, ``train_loss``, ``test_loss``, ``train_accuracy``,
            ``test_accuracy`` (0..1) and ``lr``; ``train_accuracy_on_mixed_images`` stands in where images were mixed.
        held_out: what the samples that were not trained on are called.

    Raises:
        ValueError: no rows, or one without a key that is needed.
    """
    if not rows:
        raise ValueError("metrics.csv has no rows yet: nothing to draw")
    check_rows(rows, ("epoch", "test_accuracy", "lr"))
    figure = new_figure(11, 3.4)
    loss, accuracy, rate = figure.subplots(1, 3)
    epochs = [row["epoch"] for row in rows]
    marker = "o" if len(rows) < 25 else None
    for panel, what, factor, label in ((loss, "loss", 1, "loss"), (accuracy, "accuracy", 100, "accuracy (%)")):
        for part, name, colour in (("train", "training", "#0072B2"), ("test", held_out, "#C17D00")):
            mixed = any(f"{part}_{what}_on_mixed_images" in row for row in rows)
            values = [
                factor * row.get(f"{part}_{what}_on_mixed_images", row.get(f"{part}_{what}", nan)) for row in rows
            ]
            label_of_line = f"{name}, on mixed images" if mixed else name
            panel.plot(epochs, values, label=label_of_line, color=colour, marker=marker, markersize=3)
        panel.set_ylabel(label)
    best = max(range(len(rows)), key=lambda index: rows[index]["test_accuracy"])
    accuracy.set_title(
        f"best {held_out} {100 * rows[best]['test_accuracy']:.2f} % at epoch {epochs[best]:g}", fontsize=10
    )
    rate.plot(epochs, [row["lr"] for row in rows], color="#009E73", marker=marker, markersize=3)
    rate.set_ylabel("learning rate")
    for panel in (loss, accuracy, rate):
        panel.set_xlabel("epoch")
        whole_numbers(panel.xaxis)
        panel.grid(alpha=0.3)
    label_lines(loss, accuracy)
    return figure
