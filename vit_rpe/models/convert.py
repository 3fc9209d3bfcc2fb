"""Weights of other files, made to fit our models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from vit_rpe.models.vit import VisionTransformer

DERIVED_BUFFERS = ("relative_position_index", "attn_mask")


def checkpoint_filter(state_dict: dict[str, Tensor], model: VisionTransformer) -> dict[str, Tensor]:
    """Unwrap a checkpoint and drop index and mask buffers that older files carry."""
    state_dict = state_dict.get("state_dict", state_dict)  # type: ignore[assignment]
    return {key: value for key, value in state_dict.items() if key.rsplit(".", 1)[-1] not in DERIVED_BUFFERS}
