"""The pictures a run leaves: curves, attention over test images, the learned bias, the confusion matrix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from vit_rpe.encodings import find_encodings
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.metrics import Evaluation
from vit_rpe.training.session import Session
from vit_rpe.viz import plot_bias, plot_curves, plot_images, plot_layers, record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_pictures", "draw_progress", "plot_confusion"]

_NUM_IMAGES = 8


def plot_confusion(evaluation: Evaluation, class_names: list[str]) -> Figure:
    """True class by predicted class, each row as shares of its class; accuracies beside the names.

    Args:
        evaluation: with its confusion matrix.
        class_names: one per class, at most 100.
    """
    from matplotlib.figure import Figure

    assert evaluation.confusion is not None
    counts = evaluation.confusion.double()
    shares = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
    side = 3 + 0.28 * len(class_names)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    panel = figure.subplots()
    drawn = panel.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    shown = [
        name if len(name) <= 20 else f"{name[:19]}…" for name in (name.replace("$", r"\$") for name in class_names)
    ]
    rows = [f"{name}  {accuracy:.1%}" for name, accuracy in zip(shown, evaluation.per_class, strict=True)]
    panel.set_xticks(range(len(shown)), shown, rotation=90, fontsize=7)
    panel.set_yticks(range(len(shown)), rows, fontsize=7)
    panel.set_xlabel("predicted")
    panel.set_ylabel("true class, and its accuracy")
    if len(class_names) <= 20:
        for row, column in np.argwhere(counts.numpy() > 0):
            colour = "white" if shares[row, column] > 0.5 else "black"
            text = f"{int(counts[row, column])}"
            panel.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(drawn, ax=panel, shrink=0.7, label="share of the true class")
    figure.suptitle(f"top-1 {evaluation.top1:.2%} over {evaluation.count} images", fontsize=10)
    return figure


def _examples(session: Session) -> tuple[torch.Tensor, list[int]]:
    """Validation images as the loader gives them (B, C, height, width), of classes that differ, and their classes."""
    samples = session.bundle.val
    labels = np.asarray(samples.labels)
    _, first = np.unique(labels, return_index=True)
    spread = np.linspace(0, len(first) - 1, min(_NUM_IMAGES, len(first))).astype(int)
    batch = samples.__getitems__([int(index) for index in first[spread]])
    return batch.inputs, [int(label) for label in batch.labels]


def _verdicts(names: list[str], labels: list[int], found: list[int]) -> list[str]:
    """The true class, and below it whether the model finds it."""
    pairs = zip(labels, found, strict=True)
    return [f"{names[one]}\n{'right' if one == other else f'taken for {names[other]}'}" for one, other in pairs]


def draw_pictures(session: Session, result: Evaluation) -> list[str]:
    """Fill ``pictures/`` of the run folder with what the model allows.

    Returns:
        Why a picture is missing, one sentence each.
    """
    folder = session.folder / "pictures"
    folder.mkdir(exist_ok=True)
    if session.counters.rows:
        _save(plot_curves(session.counters.rows, held_out=session.bundle.held_out), folder / "curves.png")
    if result.confusion is not None:
        _save(plot_confusion(result, session.bundle.class_names), folder / "confusion.png")
    if not session.bundle.treatment.shows_pictures:
        return []
    try:
        model = load_checkpoint(session.folder / "last").model
        for name, figure in _of_attention(session, model):
            _save(figure, folder / f"{name}.png")
    except ValueError as error:
        return [f"no picture of attention or bias for this model: {error}"]
    return []


def draw_progress(session: Session) -> tuple[dict[str, np.ndarray], list[str]]:
    """Attention and bias of the last checkpoint, into ``pictures/epoch-0010/`` of the run folder.

    The parameters of position lie beside them, in ``position.safetensors``, so that one can draw how they came about.

    Returns:
        The same pictures by name, uint8 (height, width, 3), and why some are missing.
    """
    folder = session.folder / "pictures" / f"epoch-{session.counters.epoch:04d}"
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, np.ndarray] = {}
    model = load_checkpoint(session.folder / "last").model
    position = {
        f"{path}.{name}": values.clone()
        for path, encoding in find_encodings(model)
        for name, values in encoding.state_dict().items()
    }
    if position:
        save_file(position, folder / "position.safetensors")
    try:
        for name, figure in _of_attention(session, model):
            _save(figure, folder / f"{name}.png")
            drawn[name] = _pixels(figure)
    except ValueError as error:
        return drawn, [f"no picture of attention or bias for this model: {error}"]
    return drawn, []


def _of_attention(session: Session, model: nn.Module) -> Iterator[tuple[str, Figure]]:
    """Pictures of the model over some held-out images, by name.

    Raises:
        ValueError: no image can be read, or the model shows nothing of the kind.
    """
    images, labels = _examples(session)
    if not len(images):
        raise ValueError("the example images cannot be read")
    prepared, pixels = session.bundle.to_device_batch(images, "cpu"), images.float() / 255
    with record(model, device="cpu") as seen, torch.no_grad():
        found = model(prepared).argmax(dim=-1).tolist()
    names = _verdicts(session.bundle.class_names, labels, found)
    yield "attention_images", plot_images(seen, pixels, names=names)
    yield "attention_layers", plot_layers(seen, pixels)
    yield "bias", plot_bias(seen)


def _pixels(figure: Figure) -> np.ndarray:
    """A figure as uint8 (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=150)
