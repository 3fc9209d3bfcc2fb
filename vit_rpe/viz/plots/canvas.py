"""A blank matplotlib figure and the colours every picture shares.

Figures are made without ``pyplot``: nothing global is touched, nothing is shown, nothing is saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

ATTENTION = "inferno"
"""Perceptually uniform, for values from 0 up."""
SIGNED = "RdBu_r"
"""Diverging, zero is white, for values of both signs."""
HEADS = "viridis"
"""Perceptually uniform, for the number of a head."""
HIDDEN = "0.75"
"""Grey of what no query may see."""
FADED = "0.93"
"""Grey of what a query may see and does not."""


def new_figure(width: float, height: float) -> Figure:
    """A figure of ``width`` by ``height`` inches that lays its panels out by itself.

    Raises:
        ModuleNotFoundError: matplotlib is not installed; the message says how to.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        message = f"{error.name} is not installed, and figures need it: pip install 'vit_rpe[viz]'"
        raise ModuleNotFoundError(message, name=error.name) from error

    return Figure(figsize=(width, height), layout="constrained")


def check_rows(rows: Any, keys: Sequence[str]) -> None:
    """Raise ``ValueError`` unless every row of a table is a mapping with these keys."""
    for number, row in enumerate(rows):
        missing = [key for key in keys if key not in row] if isinstance(row, Mapping) else list(keys)
        if missing:
            raise ValueError(f"row {number} must have the keys {', '.join(keys)}: {missing[0]} is missing from {row!r}")


def panels(figure: Figure, rows: int, columns: int) -> Any:
    """A (rows, columns) array of axes without ticks."""
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        bare(panel)
    return axes


def bare(panel: Axes) -> None:
    panel.set_xticks([])
    panel.set_yticks([])


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def with_hidden(name: str, under: str | None = None) -> Any:
    """The colour map ``name`` with grey for NaN, and ``under`` for what is below its range."""
    from matplotlib import colormaps

    return colormaps[name].with_extremes(bad=HIDDEN, under=under)


def new_bar(
    figure: Any, axes: Any, colours: Any, low: float, high: float, shrink: float = 1.0, location: str = "right"
) -> Any:
    """A colour bar from ``low`` to ``high`` beside the axes of a figure or of a part of one."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ScalarMappable(Normalize(low, high), colours)
    return figure.colorbar(scale, ax=axes, shrink=shrink, aspect=25, location=location)


def head_colours(count: int) -> list[Any]:
    """A colour for every head, all different."""
    from matplotlib import colormaps

    return [colormaps[HEADS](0.95 * head / max(count - 1, 1)) for head in range(count)]


def head_bar(figure: Figure, axes: Any, count: int) -> None:
    """A bar with one field for every head."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    edges = [head - 0.5 for head in range(count + 1)]
    scale = ScalarMappable(BoundaryNorm(edges, count), ListedColormap(head_colours(count)))
    step = -(-count // 12)
    bar = figure.colorbar(scale, ax=axes, ticks=range(0, count, step), label="head")
    bar.ax.tick_params(length=0, labelsize=8)
    bar.minorticks_off()


def plain_ticks(axis: Axis, values: Iterable[float] | None = None) -> None:
    """Plain numbers on a logarithmic axis, 700 and not 7 x 10^2, at these values or at 1, 2, 5, 10, 20, ..."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if values is None else FixedLocator(list(values)))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_minor_locator(NullLocator())
