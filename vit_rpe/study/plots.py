"""Pictures of a study. Every function returns a matplotlib figure and saves nothing.

Colours are families of encodings (``vit_rpe.viz.plots.families``). Plots of lines show the baseline and the ten best
others, with their names where they end; every number is in the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vit_rpe.study.plan import MOST_LINES, StudyConfig
from vit_rpe.study.results import ELSEWHERE, Row, elsewhere_columns
from vit_rpe.study.statistics import summarise
from vit_rpe.viz.plots.canvas import new_figure, whole_numbers
from vit_rpe.viz.plots.families import FAMILIES, encoding_family
from vit_rpe.viz.plots.labels import Named, label_ends, label_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
MARKERS = "osD^v<>phX*"
Line = list[tuple[float, float]]


def study_figures(study: StudyConfig, rows: Sequence[Row], summary: Sequence[dict[str, Any]]) -> dict[str, Figure]:
    """All pictures for which something was measured, by name."""
    trained = [row for row in rows if not row.get("trained_as")]
    of_trained = [entry for entry in summary if not entry["trained_as"]]
    made: dict[str, Figure | None] = {
        "accuracy": accuracy_figure(study, of_trained),
        "cost": cost_figure(study, of_trained),
        "learning": learning_figure(study, trained),
        "size": elsewhere_figure(study, trained, "at"),
        "shift": elsewhere_figure(study, trained, "shift"),
    }
    for name, labels in study.pictures.items():
        chosen = [row for row in rows if row["label"] in labels]
        made[f"size_{name}"] = elsewhere_figure(study, chosen, "at")
    return {name: figure for name, figure in made.items() if figure is not None}


def accuracy_figure(study: StudyConfig, summary: Sequence[dict[str, Any]]) -> Figure:
    """Mean accuracy of every variant with its 95 % interval, best on top; the baseline as a line."""
    figure = new_figure(7, 0.26 * len(summary) + 1.7)
    axes = figure.subplots()
    colours = _colours(study)
    entries = list(reversed(summary))
    means = [entry["accuracy_mean"] for entry in entries]
    halves = [0.0 if entry["runs"] == 1 else entry["accuracy_half_interval"] for entry in entries]
    low = min(mean - half for mean, half in zip(means, halves, strict=True))
    high = max(mean + half for mean, half in zip(means, halves, strict=True))
    axes.set_xlim(max(0.0, low - 1), min(100.0, high + 1))
    for place, (entry, mean, half) in enumerate(zip(entries, means, halves, strict=True)):
        colour = colours[entry["label"]]
        axes.errorbar(mean, place, xerr=half, fmt="o", capsize=3, color=colour, markersize=5)
        if entry["label"] == study.baseline:
            axes.axvline(mean, color="0.6", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(entries)), [_title(entry, summary) for entry in entries])
    axes.set_ylim(-0.7, len(entries) - 0.3)
    most = max(entry["runs"] for entry in summary)
    axes.set_xlabel(f"test accuracy, % ({'one seed' if most == 1 else f'mean of {most} seeds, 95 % interval'})")
    axes.set_title(f"{study.name}: accuracy by position encoding")
    axes.grid(axis="x", alpha=0.3)
    _families_below(axes, [colours[entry["label"]] for entry in entries])
    return figure


def cost_figure(study: StudyConfig, summary: Sequence[dict[str, Any]]) -> Figure:
    """Accuracy against training speed, one labelled point per variant."""
    figure = new_figure(8, 6)
    axes = figure.subplots()
    colours = _colours(study)
    points = [
        Named(entry["images_per_second_mean"], entry["accuracy_mean"], _title(entry, summary), colours[entry["label"]])
        for entry in summary
    ]
    for point in points:
        axes.plot(point.x, point.y, "o", color=point.colour, markersize=5)
    axes.margins(0.12, 0.08)
    axes.set_xlabel("training images per second in one cell's process")
    axes.set_ylabel("test accuracy, %")
    axes.set_title(f"{study.name}: accuracy against cost")
    axes.grid(alpha=0.3)
    _families_below(axes, [point.colour for point in points])
    figure.draw_without_rendering()
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    label_points(axes, points)
    return figure


def elsewhere_figure(study: StudyConfig, rows: Sequence[Row], kind: str) -> Figure | None:
    """Draw accuracy by image size (``kind="at"``) or by shift (``"shift"``); None where it was not measured."""
    matches = [ELSEWHERE.fullmatch(column) for column in elsewhere_columns(rows) if f"_{kind}_" in column]
    columns = {match[0]: int(match[2]) for match in matches if match is not None}
    if not columns:
        return None

    def curve(mine: Sequence[Row]) -> Line:
        found = {side: [row[column] for row in mine if column in row] for column, side in columns.items()}
        return [(side, summarise(values).mean) for side, values in found.items() if values]

    axes, count, all_ = _lines(study, rows, curve)
    axes.set_xticks(list(columns.values()))
    images = next((f", {row['eval_images']:,} test images" for row in rows if row.get("eval_images")), "")
    axes.set_xlabel("image side, pixels" if kind == "at" else "shift of the test images, pixels (four directions)")
    axes.set_ylabel(f"test accuracy, % (mean over seeds{images})")
    what = "image size" if kind == "at" else "shift"
    axes.set_title(f"{study.name}: accuracy against {what}, no further training{_of(count, all_)}", fontsize=11)
    return axes.figure  # type: ignore[return-value]


def learning_figure(study: StudyConfig, rows: Sequence[Row]) -> Figure | None:
    """Test accuracy by epoch, the mean over the runs of each variant; None where no row has its curve."""
    rows = [row for row in rows if row.get("curve")]
    if not rows:
        return None

    def curve(mine: Sequence[Row]) -> Line:
        curves = [json.loads(row["curve"]) for row in mine]
        return [(epoch + 1, summarise(values).mean) for epoch, values in enumerate(zip(*curves, strict=False))]

    axes, count, all_ = _lines(study, rows, curve, score=lambda line: line[-1][1])
    whole_numbers(axes.xaxis)
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy, % (mean over seeds)")
    axes.set_title(f"{study.name}: learning curves{_of(count, all_)}", fontsize=11)
    return axes.figure  # type: ignore[return-value]


def _mean_height(line: Line) -> float:
    return summarise([y for _, y in line]).mean


def _lines(
    study: StudyConfig,
    rows: Sequence[Row],
    curve: Callable[[Sequence[Row]], Line],
    *,
    score: Callable[[Line], float] = _mean_height,
) -> tuple[Axes, int, int]:
    """A plot of the baseline and the best others by ``score``, how many lines it has, and of how many."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_title(row, rows), []).append(row)
    lines = {title: line for title, mine in groups.items() if (line := curve(mine))}
    best = sorted(lines, key=lambda title: (groups[title][0]["label"] != study.baseline, -score(lines[title])))
    axes = new_figure(8, 5).subplots()
    colours, seen, ends = _colours(study), dict.fromkeys(FAMILIES.values(), 0), []
    for title in best[:MOST_LINES]:
        colour = colours[groups[title][0]["label"]]
        number = seen[colour]
        seen[colour] += 1
        look: dict[str, Any] = {"linestyle": STYLES[number % len(STYLES)], "marker": MARKERS[number % len(MARKERS)]}
        axes.plot(*zip(*lines[title], strict=True), color=colour, linewidth=1.3, markersize=4, **look)
        ends.append(Named(*lines[title][-1], title, colour))
    axes.set_ylim(axes.get_ylim())
    axes.grid(alpha=0.3)
    label_ends(axes, ends)
    _families_below(axes, [end.colour for end in ends])
    return axes, len(ends), len(lines)


def _of(count: int, all_: int) -> str:
    return "" if count == all_ else f"\nthe {count - 1} best of {all_} and the baseline"


def _families_below(axes: Axes, used: Sequence[str]) -> None:
    """Say below the plot what the colours mean."""
    from matplotlib.lines import Line2D

    names = [family for family, colour in FAMILIES.items() if colour in used]
    handles = [Line2D([], [], color=FAMILIES[family], linewidth=3, label=family) for family in names]
    figure: Any = axes.figure
    figure.legend(handles=handles, loc="outside lower center", ncols=len(names), fontsize=8, frameon=False)


def _colours(study: StudyConfig) -> dict[str, str]:
    """The colour of each variant, by its label."""
    return {it.label: FAMILIES[encoding_family(it.rpe, it.args.get("pos_embed", "none"))] for it in study.variants}


def _title(entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> str:
    extra = [f"{key} {entry[key]}" for key in ("fraction", "img_size") if len({e[key] for e in entries}) > 1]
    return ", ".join([entry["label"], *extra])
