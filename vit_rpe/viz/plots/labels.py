"""Names written beside lines and points instead of in a legend, moved apart so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = 8  # points
_LINE = 1.25 * SIZE  # height of a name in points
_LETTER = 0.62 * SIZE  # width of a letter in points


class Named(NamedTuple):
    """A name for the point (x, y) of the data, in a colour."""

    x: float
    y: float
    name: str
    colour: str


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Ascending ``places`` moved as little as possible (least squares) to lie ``gap`` apart, between low and high."""
    blocks: list[list[float]] = []  # of what is left when the gaps are taken out: places that share one mean
    for index, place in enumerate(places):
        blocks.append([place - index * gap])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    level = [_mean(block) for block in blocks for _ in block]
    top = max(low, high - (len(places) - 1) * gap)
    return [min(max(value, low), top) + index * gap for index, value in enumerate(level)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def label_ends(axes: Axes, ends: Sequence[Named]) -> None:
    """Write the name of each line to the right of the plot, with a thin line from where it ends.

    The limits of ``axes`` must be set, and its figure have its final size.
    """
    ends = sorted(ends, key=lambda end: end.y)
    spec = axes.get_subplotspec()
    rows = 1 if spec is None else spec.get_gridspec().nrows
    height = 72 * axes.figure.get_figheight() * 0.65 / rows  # type: ignore[union-attr]  # titles and legends leave it
    places = axes.transData.transform([(end.x, end.y) for end in ends])  # a scale may be logarithmic
    wanted = [float(place) for place in axes.transAxes.inverted().transform(places)[:, 1]]
    for end, place in zip(ends, spread(wanted, _LINE / height, 0.0, 1.0), strict=True):
        axes.annotate(
            end.name,
            xy=(end.x, end.y),
            xytext=(1.05, place),
            textcoords="axes fraction",
            color=end.colour,
            fontsize=SIZE,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "relpos": (0, 0.5), "color": end.colour, "linewidth": 0.6, "shrinkB": 2},
        )


def label_lines(*panels: Axes) -> None:
    """:func:`label_ends` for every line that has a label, when all lines and scales are there."""
    for axes in panels:
        lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
        axes.set_ylim(axes.get_ylim())
        ends = [
            Named(
                float(x[kept][-1]), float(y[kept][-1]), str(line.get_label()).replace("$", r"\$"), str(line.get_color())
            )
            for line in lines
            for x, y in [np.asarray(line.get_data(), dtype=float)]
            if (kept := np.isfinite(y)).any()
        ]
        if ends:
            label_ends(axes, ends)


def label_points(axes: Axes, points: Sequence[Named]) -> None:
    """Write a name beside each point, where it covers no other name and no point; further away, with a thin line.

    The limits of ``axes`` must be set and its layout be done (``figure.draw_without_rendering()``).
    """
    scale = 72 / axes.figure.dpi
    places = [tuple(scale * part for part in axes.transData.transform((it.x, it.y))) for it in points]
    frame = axes.get_window_extent()
    inside = [scale * part for part in (frame.x0, frame.y0, frame.x1, frame.y1)]
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    for point, (x, y) in sorted(zip(points, places, strict=True), key=lambda pair: pair[1]):
        width = _LETTER * len(point.name)
        steps = [(far, up) for far in (0, 8, 20, 40, 70) for up in range(-25, 26)]
        candidates = [
            (x + 7 + far if right else x - 7 - far - width, y + up * _LINE / 2 - _LINE / 2)
            for far, up in sorted(steps, key=lambda step: (step[0] + abs(step[1]) * _LINE / 2, step))
            for right in (True, False)
        ]
        boxes = [(left, bottom, left + width, bottom + _LINE) for left, bottom in candidates]
        free = [box for box in boxes if _within(box, inside) and not any(_overlap(box, other) for other in taken)]
        left, bottom, right, top = (free or boxes)[0]
        taken.append((left, bottom, right, top))
        end = (left if left > x else right, (bottom + top) / 2)
        if abs(end[0] - x) + abs(end[1] - y) > 14:
            line = axes.transData.inverted().transform([(x / scale, y / scale), (end[0] / scale, end[1] / scale)])
            axes.plot(line[:, 0], line[:, 1], color=point.colour, linewidth=0.6, alpha=0.6)
        axes.annotate(
            point.name,
            xy=(point.x, point.y),
            xytext=(left - x, bottom + 2 - y),
            textcoords="offset points",
            fontsize=SIZE,
            color=point.colour,
        )


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _within(box: Sequence[float], frame: Sequence[float]) -> bool:
    return frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3]
