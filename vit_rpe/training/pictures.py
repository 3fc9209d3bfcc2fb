"""The pictures a run leaves: curves, attention over test images, the learned bias, the confusion matrix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.training.evaluation import Evaluation
from vit_rpe.training.session import Session

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_pictures", "training_curves"]


def training_curves(rows: list[dict[str, float]]) -> Figure:
    """Loss, accuracy and learning rate over the epochs.

    Args:
        rows: those of ``metrics.csv``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    panels = figure.subplots(1, 3)
    epochs = [row["epoch"] for row in rows]
    for panel, what, factor, label in (
        (panels[0], "loss", 1, "loss"),
        (panels[1], "accuracy", 100, "accuracy (%)"),
    ):
        for part in ("train", "test"):
            panel.plot(epochs, [factor * row[f"{part}_{what}"] for row in rows], label=part)
        panel.set_ylabel(label)
        panel.legend()
    panels[2].plot(epochs, [row["lr"] for row in rows])
    panels[2].set_ylabel("learning rate at the epoch's start")
    for panel in panels:
        panel.set_xlabel("epoch")
        panel.grid(alpha=0.3)
    return figure


def draw_pictures(session: Session, result: Evaluation) -> None:
    """Fill ``pictures/`` of the run folder."""
    folder = session.folder / "pictures"
    folder.mkdir(exist_ok=True)
    if session.counters.rows:
        _save(training_curves(session.counters.rows), folder / "curves.png")


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=150)
