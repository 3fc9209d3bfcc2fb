"""The page in which a person points at a patch and sees where a model looks."""

from vit_rpe.viz.explorer.write import explorer_page

__all__ = ["explorer_page"]
