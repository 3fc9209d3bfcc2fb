"""A blank matplotlib figure and the colours every picture shares.

Figures are made without ``pyplot``: nothing global is touched, nothing is shown, nothing is saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def with_hidden(name: str) -> Any:
    """The colour map ``name`` with grey for NaN."""
    from matplotlib import colormaps

    return colormaps[name].with_extremes(bad=HIDDEN)


def colour_scale(name: str, top: float) -> Any:
    """What a colour bar from 0 to ``top`` is made of."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(0, top), name)
