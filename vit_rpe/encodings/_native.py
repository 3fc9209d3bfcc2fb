"""The size that parameters were trained on, for encodings whose formula holds it.

It is an option, ``native``. What another size must not change is handed on: by ``resized``, and beside the tensors of a
``state_dict``, in its metadata, which ``torch.save`` keeps. Files that hold tensors only do not tell, and there the
native grid of the model that loads them counts, as without this option.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from vit_rpe.encodings._interface import PositionEncoding

KEY = "native"


def remember_native(module: PositionEncoding, native: tuple[int, ...] | None) -> None:
    """Set ``module.native``, and let its ``state_dict`` say it and ``load_state_dict`` believe what weights say.

    Args:
        native: one size per axis; None = that of the native grid.

    Raises:
        ValueError: not one positive size per axis.
    """
    if native is not None and (len(native) != module.grid.ndim or min(native) < 1):
        raise ValueError(f"native={native!r} needs one positive size per axis of the grid {module.grid.size}")
    module.native = module.grid.size if native is None else native
    module.register_state_dict_post_hook(_say)
    module.register_load_state_dict_pre_hook(_take)


def _say(module: nn.Module, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any]) -> None:
    local_metadata[KEY] = module.native


def _take(
    module: PositionEncoding, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *args: Any
) -> None:
    if KEY in local_metadata:
        module.trained_on(local_metadata[KEY])
