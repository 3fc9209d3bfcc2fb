"""See what a model attends to: recorder, maps and figures. Figures need matplotlib, the rest does not.

Plotting functions return matplotlib figures and never show or save them.
"""

from vit_rpe.viz.maps import by_offset, mean_distance, offset_range, rollout
from vit_rpe.viz.plot_bias import plot_bias
from vit_rpe.viz.plot_curves import plot_curves
from vit_rpe.viz.plot_overlay import plot_images, plot_layers
from vit_rpe.viz.record import Recording, record

__all__ = [
    "Recording",
    "by_offset",
    "mean_distance",
    "offset_range",
    "plot_bias",
    "plot_curves",
    "plot_images",
    "plot_layers",
    "record",
    "rollout",
]
