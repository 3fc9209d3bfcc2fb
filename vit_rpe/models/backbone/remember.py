"""Changes after construction that timm must know of to build the same model again (``save_for_hf``)."""

from __future__ import annotations

from typing import Any

from torch import nn


def remember_args(model: nn.Module, **changed: Any) -> None:
    """Record constructor arguments that no longer have the value the model was built with."""
    model._model_args = {**getattr(model, "_model_args", {}), **changed}  # type: ignore[assignment]


def remember_input_size(model: nn.Module, img_size: tuple[int, int], **changed: Any) -> None:
    """Record a new native resolution, for rebuilding and for the data configuration."""
    remember_args(model, img_size=img_size, **{key: value for key, value in changed.items() if value is not None})
    model._traits = {**getattr(model, "_traits", {}), "img_size": img_size}  # type: ignore[assignment]
