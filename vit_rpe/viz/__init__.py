"""See what a model attends to: recorder, maps and figures. Figures need matplotlib, the rest does not.

Plotting functions return matplotlib figures and never show or save them.
"""

from typing import Any

from vit_rpe.checks import warn_renamed
from vit_rpe.viz.plots.bias import plot_bias
from vit_rpe.viz.plots.curves import plot_curves
from vit_rpe.viz.plots.overlay import plot_images, plot_layers
from vit_rpe.viz.plots.rotation import plot_frequencies
from vit_rpe.viz.plots.summary import plot_distance, plot_rollout, plot_split
from vit_rpe.viz.plots.tokens import plot_tokens
from vit_rpe.viz.recording.gradient import record_class
from vit_rpe.viz.recording.maps import by_offset, mean_distance, picture_range, rollout
from vit_rpe.viz.recording.record import record
from vit_rpe.viz.recording.recording import Recording
from vit_rpe.viz.recording.rotation import rotation_frequencies

__all__ = [
    "Recording",
    "by_offset",
    "mean_distance",
    "picture_range",
    "plot_bias",
    "plot_curves",
    "plot_distance",
    "plot_frequencies",
    "plot_images",
    "plot_layers",
    "plot_rollout",
    "plot_split",
    "plot_tokens",
    "record",
    "record_class",
    "rollout",
    "rotation_frequencies",
]


def __getattr__(name: str) -> Any:
    """``offset_range`` is ``picture_range`` now: offsets are query minus key, a picture shows the reverse."""
    if name == "offset_range":
        warn_renamed("vit_rpe.viz.offset_range", "vit_rpe.viz.picture_range")
        return picture_range
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
