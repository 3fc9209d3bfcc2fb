"""Values painted over an image: its patches stay seen where values are small, its greys never look like a colour.

The image is drawn in dark grey and what lies on it gets the more opaque the more it says, so that every colour is one
of the bar's.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz.plots.canvas import ATTENTION, new_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DIM = 0.5
"""Brightness of white in the image below an overlay."""
_GRID_UP_TO = 32
"""Patches along a side whose limits are hinted."""


@cache
def share_colours() -> Any:
    """From clear (0) to opaque (the largest): attention over an image."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    at = np.linspace(0, 1, 256)
    colours = colormaps[ATTENTION](0.25 + 0.75 * at)
    colours[:, 3] = np.minimum(1, 1.25 * at**0.7)
    return ListedColormap(colours, "share")


@cache
def times_colours() -> Any:
    """Blue for less than the uniform share, clear for as much, orange for more."""
    from matplotlib.colors import ListedColormap

    at = np.linspace(-1, 1, 256)
    low, high = np.array([0.25, 0.62, 1.0]), np.array([1.0, 0.62, 0.1])
    colours = np.where(at[:, None] < 0, low, high)
    return ListedColormap(np.column_stack([colours, np.minimum(1, 1.25 * np.abs(at) ** 0.7)]), "times")


def on_dark(colours: Any) -> Any:
    """The same colours as they look on the grey of an image of middle brightness: those of the bar."""
    from matplotlib.colors import ListedColormap

    table = colours(np.linspace(0, 1, 256))
    table[:, :3] = table[:, 3:] * table[:, :3] + (1 - table[:, 3:]) * DIM / 2
    table[:, 3] = 1
    return ListedColormap(table)


def overlay(panel: Axes, picture: Any, values: Tensor, *, limit: float | None = None) -> None:
    """Draw values (h, w) smoothly over a picture (height, width) or (height, width, 3).

    Args:
        values: from 0 up, coloured to their largest; with ``limit`` of both signs, coloured to that magnitude.
    """
    height, width = picture.shape[:2]
    gray = picture if picture.ndim == 2 else picture @ np.array([0.299, 0.587, 0.114])
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    # Eight bits: a panel keeps its own copy, and there may be hundreds.
    panel.imshow(np.rint(255 * gray).astype(np.uint8), cmap="gray", vmin=0, vmax=255 / DIM, extent=extent)
    top = float(values.max()) if limit is None else limit
    panel.imshow(
        values.detach().float().cpu().numpy(),
        cmap=share_colours() if limit is None else times_colours(),
        vmin=0 if limit is None else -limit,
        vmax=top if top > 0 else 1,
        extent=extent,
        interpolation="hermite",  # smooth, exact in the middle of a patch, never beyond its neighbours
        interpolation_stage="data",
    )
    hint_patches(panel, picture, TokenGrid(tuple(values.shape)))


def hint_patches(panel: Axes, picture: Any, grid: TokenGrid) -> None:
    """Thin lines between the patches of a picture (height, width, ...), where there is room for them."""
    if max(grid.size) > _GRID_UP_TO:
        return
    height, width = picture.shape[:2]
    look: dict[str, Any] = {"color": "white", "linewidth": 0.35, "alpha": 0.3}
    rows, columns = grid.size
    panel.hlines([row * height / rows - 0.5 for row in range(1, rows)], -0.5, width - 0.5, **look)
    panel.vlines([column * width / columns - 0.5 for column in range(1, columns)], -0.5, height - 0.5, **look)


def outline(panel: Axes, picture: Any, grid: TokenGrid, place: tuple[int, ...]) -> None:
    """A frame around the patch at ``place`` of a picture (height, width, ...)."""
    from matplotlib.patches import Rectangle

    step_h, step_w = picture.shape[0] / grid.size[0], picture.shape[1] / grid.size[1]
    corner = (place[1] * step_w - 0.5, place[0] * step_h - 0.5)
    panel.add_patch(Rectangle(corner, step_w, step_h, fill=False, edgecolor="cyan", linewidth=1.5))


def as_picture(pixels: Tensor) -> Any:
    """(C, height, width) in 0..1 as an array (height, width) for one channel or (height, width, 3)."""
    array = pixels.detach().float().clamp(0, 1).cpu().numpy()
    return array[0] if array.shape[0] == 1 else array.transpose(1, 2, 0)


def times_uniform(weights: Tensor) -> Tensor:
    """How many times the uniform share every token gets, as a power of two; 0 where nothing is seen at all."""
    mean = weights.mean()
    return (weights / mean).clamp_min(2**-20).log2() if mean > 0 else torch.zeros_like(weights)


def share_bar(figure: Figure, axes: Any, shrink: float) -> None:
    """The bar of panels that end at their own largest value."""
    bar = new_bar(figure, axes, on_dark(share_colours()), 0, 1, shrink)
    bar.set_ticks([0, 1], labels=["0", "largest"], fontsize=8)
    bar.set_label("attention", fontsize=8, labelpad=-8)


def times_bar(figure: Figure, axes: Any, limit: float, shrink: float) -> None:
    """The bar of panels that compare with the uniform share, from 2^-limit to 2^limit."""
    bar = new_bar(figure, axes, on_dark(times_colours()), -limit, limit, shrink)
    ends = f"{2**limit:.3g}"
    bar.set_ticks([-limit, 0, limit], labels=[f"1/{ends}", "1x", f"{ends}x"], fontsize=8)
    bar.set_label("times the uniform share", fontsize=8)
