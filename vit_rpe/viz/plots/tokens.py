"""Token-by-token maps of sequences and of cross-attention, with the tokens' names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vit_rpe.viz.plots.asked import heads_of, image_of, layer_of
from vit_rpe.viz.plots.canvas import ATTENTION, new_figure
from vit_rpe.viz.plots.overlay import shorten
from vit_rpe.viz.recording.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_tokens(
    seen: Recording,
    query_labels: Sequence[str],
    key_labels: Sequence[str] | None = None,
    *,
    sample: int = 0,
    layer: int = -1,
    heads: Sequence[int] | None = None,
) -> Figure:
    """One matrix per head: row = query, column = key, all on one scale from 0 to the largest weight.

    Args:
        query_labels: one per query token, prefix included.
        key_labels: one per key token (cross-attention); default: the query's.
        sample: which of the batch.
        layer: number of the layer.
        heads: which; default all.

    Raises:
        ValueError: labels that do not fit the map, or no such layer, head or sample.
    """
    layer, sample = layer_of(seen, layer), image_of(seen, sample, "sample")
    queries = _labels(query_labels, "query_labels")
    keys = queries if key_labels is None else _labels(key_labels, "key_labels")
    weights = seen.attention(layer)
    if weights.shape[2:] != (len(queries), len(keys)):
        raise ValueError(
            f"{len(queries)} query labels and {len(keys)} key labels do not fit a map of "
            f"{weights.shape[2]} queries and {weights.shape[3]} keys"
        )
    (chosen,) = heads_of(seen, [layer], heads)
    side_h, side_w = (max(1.8, 0.17 * length) for length in weights.shape[2:])
    figure = new_figure(side_w * len(chosen) + 1.8, side_h + 1.4)
    axes = figure.subplots(1, len(chosen), squeeze=False, sharey=True)[0]
    top = float(weights[sample, chosen].max()) or 1.0
    drawn: Any = None
    for panel, head in zip(axes, chosen, strict=True):
        drawn = panel.imshow(weights[sample, head].float().cpu().numpy(), cmap=ATTENTION, vmin=0, vmax=top)
        panel.set_title(f"head {head}", fontsize=9)
        panel.set_xticks(range(len(keys)), [_label(key) for key in keys], rotation=90, fontsize=7)
        panel.set_xlabel("key", fontsize=8)
    axes[0].set_yticks(range(len(queries)), [_label(label) for label in queries], fontsize=7)
    axes[0].set_ylabel("query", fontsize=8)
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="attention")
    figure.set_layout_engine("constrained", w_pad=0.09)  # the bar's name sticks out beside square panels
    figure.suptitle(f"layer {layer}: attention, token by token", fontsize=10)
    return figure


def _labels(given: Any, what: str) -> list[str]:
    try:
        return [str(label) for label in given]
    except TypeError:
        raise ValueError(f"{what} must be one text per token, got {given!r}") from None


def _label(text: str) -> str:
    """A token's name short enough for a tick; line ends, tabs and spaces at its ends get a sign that can be seen."""
    return shorten(re.sub(r"^ +| +$|[\n\r\t]", lambda blank: blank[0].translate(_BLANKS), text), 14)


_BLANKS = str.maketrans({" ": "\u2423", "\n": "\u23ce", "\r": "\u21b5", "\t": "\u21e5"})
