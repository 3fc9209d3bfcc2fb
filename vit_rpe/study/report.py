"""Tables of a study: one tidy row per run, a summary per variant, differences paired by seed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from vit_rpe.study.plan import StudyConfig
from vit_rpe.study.results import COLUMNS, ELSEWHERE, PROVENANCE, Row, elsewhere_columns
from vit_rpe.study.statistics import paired, summarise
from vit_rpe.training.checkpoint.files import write_text


def write_tables(study: StudyConfig, rows: Sequence[Row], output: Path, notes: Sequence[str] = ()) -> str:
    """Write ``results.csv``, ``summary.csv`` and ``summary.md``.

    Args:
        notes: sentences below the tables.

    Returns:
        The Markdown summary.
    """
    summary = summarise_rows(study, rows)
    write_text(output / "results.csv", _csv(rows))
    write_text(output / "summary.csv", _csv(summary))
    markdown = markdown_summary(study, summary)
    notes = [*indistinct(study, rows), *notes]
    markdown += "".join(f"\n- {note}" for note in notes) + "\n" if notes else ""
    write_text(output / "summary.md", markdown)
    return markdown


def summarise_rows(study: StudyConfig, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Per variant (and fraction and size): mean, sd and 95 % interval of the accuracy, its difference to the baseline.

    The difference is taken seed by seed at the same fraction and size. Sorted by accuracy, best first. Means at other
    sizes and shifts are over the runs that were measured there; a variant without one has no such entry.
    """
    ordered = sorted(rows, key=_group)
    groups = {key: list(items) for key, items in groupby(ordered, key=_group)}
    elsewhere = elsewhere_columns(rows)
    summary = []
    for (fraction, img_size, label), items in groups.items():
        accuracy = summarise([row["accuracy"] for row in items])
        difference = paired(_by_seed(items), _by_seed(groups.get((fraction, img_size, study.baseline), [])))
        entry = {
            "label": label,
            "trained_as": items[0].get("trained_as"),
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
        for column in elsewhere:
            measured = [row[column] for row in items if column in row]
            entry |= {column: summarise(measured).mean} if measured else {}
        summary.append(entry)
    return sorted(summary, key=lambda entry: (entry["fraction"], entry["img_size"], -entry["accuracy_mean"]))


def markdown_summary(study: StudyConfig, summary: Sequence[dict[str, Any]]) -> str:
    """The summary as Markdown tables; intervals are 95 % of the mean over seeds.

    The second table, where it was measured: mean accuracy at other image sizes and after shifts, without training.
    Variants that only read what another one trained have their rows there.
    """
    varied = [key for key in ("fraction", "img_size") if len({entry[key] for entry in summary}) > 1]
    head = ["encoding", *varied, "runs", "parameters", "accuracy %", f"minus `{study.baseline}`", "seconds", "images/s"]
    lines = _table(head, (_main_cells(study, entry, varied) for entry in summary if not entry["trained_as"]))
    elsewhere = elsewhere_columns(summary)
    if elsewhere:
        names = [f"{kind} {pixels} px" for kind, pixels in (ELSEWHERE.fullmatch(key).groups() for key in elsewhere)]  # type: ignore[union-attr]
        lines += ["", *_table(["encoding", *varied, *names], (_else_cells(it, varied, elsewhere) for it in summary))]
    return "\n".join(lines) + "\n"


def indistinct(study: StudyConfig, rows: Sequence[Row]) -> Iterator[str]:
    """Which variants cannot be told apart from the best and from the baseline, one sentence each.

    Told apart are two variants if the 95 % interval of their difference, paired by seed, does not hold 0; every pair is
    judged on its own.
    """
    trained = sorted((row for row in rows if not row.get("trained_as")), key=_group)
    for (fraction, img_size), items in groupby(trained, key=lambda row: _group(row)[:2]):
        by_label = {label: _by_seed(list(found)) for label, found in groupby(items, key=lambda row: row["label"])}
        of = "" if len({_group(row)[:2] for row in trained}) == 1 else f" (fraction {fraction:g}, img_size {img_size})"
        best = max(by_label, key=lambda label: summarise(list(by_label[label].values())).mean)
        for other in dict.fromkeys((best, study.baseline)):
            if other not in by_label or len(by_label) < 2:
                continue
            alike, few = [], []
            for label, mine in by_label.items():
                difference = None if label == other else paired(mine, by_label[other])
                if difference is not None and difference.half != difference.half:
                    few.append(label)
                elif difference is not None and abs(difference.mean) <= difference.half:
                    alike.append(label)
            role = "the best" if other == best else "the baseline"
            told = ", ".join(f"`{label}`" for label in alike) or ("no variant" if not few else "")
            if told:
                yield f"Not told apart from `{other}`, {role}{of}, by these seeds: {told}."
            if few:
                yield f"Compared with `{other}`, {role}{of}, on one seed only: {len(few)} variants, none told apart."


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in rows]


def _main_cells(study: StudyConfig, entry: dict[str, Any], varied: Sequence[str]) -> list[str]:
    return [
        f"`{entry['label']}`",
        *(str(entry[key]) for key in varied),
        str(entry["runs"]),
        f"{entry['parameters']:,}",
        _interval(entry["accuracy_mean"], entry["accuracy_half_interval"]),
        "—" if entry["label"] == study.baseline or entry["difference_mean"] is None else _difference(entry),
        f"{entry['seconds_mean']:.0f}",
        f"{entry['images_per_second_mean']:.0f}",
    ]


def _else_cells(entry: dict[str, Any], varied: Sequence[str], elsewhere: Sequence[str]) -> list[str]:
    name = f"`{entry['label']}`" + (f", trained as `{entry['trained_as']}`" if entry["trained_as"] else "")
    values = [f"{entry[key]:.1f}" if key in entry else "—" for key in elsewhere]
    return [name, *(str(entry[key]) for key in varied), *values]


def _group(row: Row) -> tuple[float, str, str]:
    return row["fraction"], row["img_size"], row["label"]


def _by_seed(rows: Sequence[Row]) -> dict[int, float]:
    return {row["seed"]: row["accuracy"] for row in rows}


def _interval(mean: float, half: float) -> str:
    return f"{mean:.2f}" if half != half else f"{mean:.2f} ± {half:.2f}"


def _difference(entry: dict[str, Any]) -> str:
    mean, half = entry["difference_mean"], entry["difference_half_interval"]
    return f"{mean:+.2f}" if half != half else f"{mean:+.2f} ± {half:.2f}"


def _csv(rows: Sequence[Row]) -> str:
    given = list(dict.fromkeys(key for row in rows for key, value in row.items() if value is not None))
    first = [key for key in COLUMNS if key in given]
    last = [*elsewhere_columns(rows), *(key for key in PROVENANCE if key in given)]
    names = [*first, *(key for key in given if key not in (*first, *last)), *last]
    text = io.StringIO()
    table = csv.DictWriter(text, fieldnames=names, restval="", extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
    return text.getvalue()
