"""Pictures of a study. Every function returns a matplotlib figure and saves nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vit_rpe.study.plan import StudyConfig
from vit_rpe.study.statistics import summarise
from vit_rpe.training.checkpoint.run_folder import read_metrics

COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "black")
STYLES = ("-", "--", ":")
MARKERS = "osD^v<>ph*XP"


def accuracy_figure(study: StudyConfig, summary: Sequence[dict[str, Any]]) -> Figure:
    """Mean accuracy of every variant with its 95 % interval, best on top; the baseline as a line."""
    figure = Figure(figsize=(7, 0.32 * len(summary) + 1.4), layout="constrained")
    axes = figure.subplots()
    entries = list(reversed(summary))
    names = [_title(entry, summary) for entry in entries]
    means = [entry["accuracy_mean"] for entry in entries]
    halves = [
        0.0 if entry["accuracy_half_interval"] != entry["accuracy_half_interval"] else entry["accuracy_half_interval"]
        for entry in entries
    ]
    low = min(mean - half for mean, half in zip(means, halves, strict=True))
    high = max(mean + half for mean, half in zip(means, halves, strict=True))
    axes.set_xlim(max(0.0, low - 1), min(100.0, high + 1))
    axes.errorbar(means, range(len(means)), xerr=halves, fmt="o", capsize=3, color="tab:blue", markersize=5)
    axes.set_yticks(range(len(names)), names)
    for entry in summary:
        if entry["label"] == study.baseline:
            axes.axvline(entry["accuracy_mean"], color="0.6", linewidth=1, linestyle="--")
    axes.set_xlabel(f"test accuracy, % (mean of {max(entry['runs'] for entry in summary)} seeds, 95 % interval)")
    axes.set_title(f"{study.name}: accuracy by position encoding")
    axes.grid(axis="x", alpha=0.3)
    return figure


def cost_figure(study: StudyConfig, summary: Sequence[dict[str, Any]]) -> Figure:
    """Accuracy against training speed, one labelled point per variant."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    for entry in summary:
        axes.plot(entry["images_per_second_mean"], entry["accuracy_mean"], "o", color="tab:blue")
        place = (entry["images_per_second_mean"], entry["accuracy_mean"])
        axes.annotate(_title(entry, summary), place, xytext=(4, 4), textcoords="offset points", fontsize=8)
    axes.set_xlabel("training images per second in one cell's process")
    axes.set_ylabel("test accuracy, %")
    axes.set_title(f"{study.name}: accuracy against cost")
    axes.grid(alpha=0.3)
    return figure


def elsewhere_figure(study: StudyConfig, rows: Sequence[dict[str, Any]], kind: str) -> Figure | None:
    """Draw accuracy by image size (``kind="at"``) or by shift (``"shift"``); None where it was not measured."""
    pattern = re.compile(rf"accuracy_{kind}_(\d+)px")
    columns = {int(found[1]): key for key in rows[0] if (found := pattern.fullmatch(key))}
    if not columns:
        return None
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    pixels = sorted(columns)
    for index, label in enumerate(dict.fromkeys(row["label"] for row in rows)):
        mine = [row for row in rows if row["label"] == label]
        means = [summarise([row[columns[side]] for row in mine]).mean for side in pixels]
        axes.plot(pixels, means, marker=MARKERS[index % len(MARKERS)], markersize=4, label=label, **_line(index))
    axes.set_xticks(pixels)
    axes.set_xlabel("image side, pixels" if kind == "at" else "shift of the test images, pixels (four directions)")
    axes.set_ylabel("test accuracy, % (mean over seeds, no further training)")
    axes.set_title(f"{study.name}: accuracy against {'image size' if kind == 'at' else 'shift'}")
    _legend(axes)
    return figure


def learning_figure(study: StudyConfig, folders: dict[str, list[Path]]) -> Figure:
    """Test accuracy by epoch, the mean over the finished runs of each variant."""
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    for index, (label, runs) in enumerate(folders.items()):
        curves = [[row["test_accuracy"] for row in read_metrics(run)] for run in runs]
        length = min(map(len, curves))
        means = [100 * sum(curve[epoch] for curve in curves) / len(curves) for epoch in range(length)]
        axes.plot(range(1, length + 1), means, label=label, **_line(index))
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy, % (mean over seeds)")
    axes.set_title(f"{study.name}: learning curves")
    _legend(axes)
    return figure


def _line(index: int) -> dict[str, Any]:
    """A look of its own for each of up to 21 variants."""
    style = STYLES[index // len(COLOURS) % len(STYLES)]
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": style, "linewidth": 1.2}


def _legend(axes: Axes) -> None:
    """Names in the order in which the lines end, best on top."""
    axes.grid(alpha=0.3)
    lines = sorted(axes.get_lines(), key=lambda line: -float(line.get_ydata()[-1]))  # type: ignore[index, arg-type]
    axes.legend(
        handles=lines, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False, handlelength=3.5
    )


def _title(entry: dict[str, Any], summary: Sequence[dict[str, Any]]) -> str:
    extra = [f"{key} {entry[key]}" for key in ("fraction", "img_size") if len({e[key] for e in summary}) > 1]
    return ", ".join([entry["label"], *extra])
