"""Tables of a study: one tidy row per run, a summary per variant, differences paired by seed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from vit_rpe.study.plan import StudyConfig
from vit_rpe.study.statistics import paired, summarise
from vit_rpe.training.checkpoint.files import write_text

ELSEWHERE = ("accuracy_at_", "accuracy_shift_")


def write_tables(study: StudyConfig, rows: Sequence[dict[str, Any]], output: Path) -> str:
    """Write ``results.csv``, ``summary.csv`` and ``summary.md``.

    Returns:
        The Markdown summary.
    """
    summary = summarise_rows(study, rows)
    write_text(output / "results.csv", _csv(rows))
    write_text(output / "summary.csv", _csv(summary))
    markdown = markdown_summary(study, summary)
    write_text(output / "summary.md", markdown)
    return markdown


def summarise_rows(study: StudyConfig, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per variant (and fraction and size): mean, sd and 95 % interval of the accuracy, its difference to the baseline.

    The difference is taken seed by seed at the same fraction and size. Sorted by accuracy, best first.
    """
    ordered = sorted(rows, key=_group)
    groups = {key: list(items) for key, items in groupby(ordered, key=_group)}
    summary = []
    for (fraction, img_size, label), items in groups.items():
        accuracy = summarise([row["accuracy"] for row in items])
        difference = paired(_by_seed(items), _by_seed(groups.get((fraction, img_size, study.baseline), [])))
        entry = {
            "label": label,
            "fraction": fraction,
            "img_size": img_size,
            "runs": accuracy.count,
            "parameters": items[0]["parameters"],
            "accuracy_mean": accuracy.mean,
            "accuracy_sd": accuracy.sd,
            "accuracy_half_interval": accuracy.half,
            "difference_mean": None if difference is None else difference.mean,
            "difference_half_interval": None if difference is None else difference.half,
            "seconds_mean": summarise([row["seconds"] for row in items]).mean,
            "images_per_second_mean": summarise([row["images_per_second"] for row in items]).mean,
        }
        for column in _elsewhere(items):
            entry[column] = summarise([row[column] for row in items]).mean
        summary.append(entry)
    return sorted(summary, key=lambda entry: (entry["fraction"], entry["img_size"], -entry["accuracy_mean"]))


def markdown_summary(study: StudyConfig, summary: Sequence[dict[str, Any]]) -> str:
    """The summary as Markdown tables; intervals are 95 % of the mean over seeds.

    The second table, where it was measured: mean accuracy at other image sizes and after shifts, without training.
    """
    varied = [key for key in ("fraction", "img_size") if len({entry[key] for entry in summary}) > 1]
    head = ["encoding", *varied, "runs", "parameters", "accuracy %", f"minus `{study.baseline}`", "seconds", "images/s"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for entry in summary:
        cells = [
            f"`{entry['label']}`",
            *(str(entry[key]) for key in varied),
            str(entry["runs"]),
            f"{entry['parameters']:,}",
            _interval(entry["accuracy_mean"], entry["accuracy_half_interval"]),
            "—" if entry["label"] == study.baseline or entry["difference_mean"] is None else _difference(entry),
            f"{entry['seconds_mean']:.0f}",
            f"{entry['images_per_second_mean']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    elsewhere = [key for key in summary[0] if key.startswith(ELSEWHERE)]
    if elsewhere:
        names = [key.removeprefix("accuracy_").replace("_", " ").replace("px", " px") for key in elsewhere]
        lines += ["", "| " + " | ".join(["encoding", *varied, *names]) + " |"]
        lines.append("|" + "---|" * (1 + len(varied) + len(names)))
        for entry in summary:
            cells = [f"`{entry['label']}`", *(str(entry[key]) for key in varied)]
            cells += [f"{entry[key]:.1f}" for key in elsewhere]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _group(row: dict[str, Any]) -> tuple[float, str, str]:
    return row["fraction"], row["img_size"], row["label"]


def _by_seed(rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    return {row["seed"]: row["accuracy"] for row in rows}


def _elsewhere(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [key for key in rows[0] if key.startswith(ELSEWHERE)]


def _interval(mean: float, half: float) -> str:
    return f"{mean:.2f}" if half != half else f"{mean:.2f} ± {half:.2f}"


def _difference(entry: dict[str, Any]) -> str:
    mean, half = entry["difference_mean"], entry["difference_half_interval"]
    return f"{mean:+.2f}" if half != half else f"{mean:+.2f} ± {half:.2f}"


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    table = csv.DictWriter(text, fieldnames=names, restval="", lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
    return text.getvalue()
