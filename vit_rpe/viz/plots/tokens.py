"""Token-by-token maps of sequences and of cross-attention, with the tokens' names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    keys = list(query_labels) if key_labels is None else list(key_labels)
    weights = seen.attention(layer)
    if not 0 <= sample < len(weights):
        raise ValueError(f"sample {sample} does not exist: the recording has {len(weights)}")
    if weights.shape[2:] != (len(query_labels), len(keys)):
        raise ValueError(
            f"{len(query_labels)} query labels and {len(keys)} key labels do not fit a map of "
            f"{weights.shape[2]} queries and {weights.shape[3]} keys"
        )
    chosen = [seen.head(layer, head) for head in (range(weights.shape[1]) if heads is None else heads)]
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
    axes[0].set_yticks(range(len(query_labels)), [_label(label) for label in query_labels], fontsize=7)
    axes[0].set_ylabel("query", fontsize=8)
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="attention")
    figure.suptitle(f"layer {layer % len(seen)}: attention, token by token", fontsize=10)
    return figure


def _label(text: str) -> str:
    """A token's name short enough for a tick; line ends, tabs and spaces at its ends get a sign that can be seen."""
    return shorten(re.sub(r"^ +| +$|[\n\r\t]", lambda blank: blank[0].translate(_BLANKS), text), 14)


_BLANKS = str.maketrans({" ": "\u2423", "\n": "\u23ce", "\r": "\u21b5", "\t": "\u21e5"})
