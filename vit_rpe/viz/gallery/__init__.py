"""The gallery: one HTML file that draws every encoding from its formula, with sliders."""

from vit_rpe.viz.gallery.write import gallery_page

__all__ = ["gallery_page"]
