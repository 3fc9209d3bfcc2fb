"""What ``load_state_dict`` accepts beyond an exact match, and what it never does silently.

* index buffers that older files carry are dropped;
* a shared encoding fills every layer, layerwise ones are averaged into a shared one (with a warning unless equal);
* a learned embedding of another grid is resampled where a table in the same weights tells that grid, else refused;
* with ``strict=False`` an encoding that keeps random values is named in a warning.

Tables of another grid are resampled by the encodings themselves.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vit_rpe.absolute import resample_embedding
from vit_rpe.encodings import PositionEncoding
from vit_rpe.models._embed import embedded_prefix

if TYPE_CHECKING:
    from vit_rpe.models.vit import VisionTransformer

DERIVED_BUFFERS = ("relative_position_index", "attn_mask")
LAYERWISE = re.compile(r"^blocks\.(\d+)\.attn\.rpe\.(.+)$")


def before_load(
    model: VisionTransformer,
    state_dict: dict[str, Any],
    prefix: str,
    local_metadata: dict[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """Hook of ``load_state_dict``: change the given (copied) weights to fit the model."""
    own = {key: value for key, value in state_dict.items() if key.startswith(prefix)}
    for key in own:
        if key.rsplit(".", 1)[-1] in DERIVED_BUFFERS:
            del state_dict[key]
    weights = {key.removeprefix(prefix): value for key, value in own.items() if key in state_dict}
    fitted = fit_sharing(weights, set(model.state_dict()))
    for key in weights.keys() - fitted.keys():
        del state_dict[prefix + key]
    state_dict.update({prefix + key: value for key, value in fitted.items()})
    rows = fitted.get("pos_embed")
    if rows is None or model.pos_embed is None or rows.shape == model.pos_embed.shape:
        return
    grid, num_prefix = grid_of_tables(fitted), embedded_prefix(model)
    if grid is None or rows.shape[1] != num_prefix + prod(grid) or rows.shape[2] != model.pos_embed.shape[2]:
        error_msgs.append(
            f"pos_embed has {rows.shape[1]} rows, the grid {tuple(model.patch_embed.grid_size)} with {num_prefix} "
            f"prefix rows needs {model.pos_embed.shape[1]}; the weights do not say their own grid: create the model "
            "with the img_size of the weights, load them, then call set_input_size"
        )
        state_dict[prefix + "pos_embed"] = model.pos_embed.detach()
        return
    state_dict[prefix + "pos_embed"] = resample_embedding(
        rows, grid, model.patch_embed.grid_size, num_prefix=num_prefix
    )


def after_load(model: VisionTransformer, incompatible: Any) -> None:
    """Hook of ``load_state_dict``: with ``strict=False``, say which encodings kept the values they had."""
    paths = [path for path, module in model.named_modules() if isinstance(module, PositionEncoding)]
    left = [key for key in incompatible.missing_keys if any(key.startswith(f"{path}.") for path in paths)]
    if left:
        warnings.warn(
            f"the weights lack {len(left)} parameters of position encodings, which keep the values they had: {left[0]}"
            f"{' ...' if len(left) > 1 else ''}",
            stacklevel=3,
        )


def fit_sharing(weights: dict[str, Any], expected: Iterable[str]) -> dict[str, Any]:
    """Turn shared encodings into layerwise ones or the other way, wherever the model expects that."""
    fitted = dict(weights)
    for key in set(expected) - set(weights):
        layerwise = LAYERWISE.match(key)
        if layerwise is not None and f"rpe.{layerwise[2]}" in weights:
            fitted[key] = weights[f"rpe.{layerwise[2]}"]
            fitted.pop(f"rpe.{layerwise[2]}", None)
        elif key.startswith("rpe."):
            layers = [name for name in weights if _parameter_of(name) == key.removeprefix("rpe.")]
            if layers:
                fitted[key] = average([weights[name] for name in layers], key)
                for name in layers:
                    del fitted[name]
    return fitted


def average(layers: Sequence[Tensor], key: str) -> Tensor:
    """The mean of one parameter over the layers; bit for bit theirs where they are equal, with a warning where not."""
    if all(torch.equal(layer, layers[0]) for layer in layers):
        return layers[0]
    warnings.warn(f"{key}: the layers of the weights differ; the shared encoding gets their mean", stacklevel=3)
    return torch.stack(list(layers)).mean(0)


def grid_of_tables(weights: dict[str, Any]) -> tuple[int, ...] | None:
    """The token grid that exact tables (H, 2 size_1 - 1, ..., 2 size_n - 1) in the weights were made for."""
    for key, value in weights.items():
        if re.search(r"(^|\.)rpe\.(parts\.\w+\.)?table$", key) and value.ndim == 3:
            return tuple((length + 1) // 2 for length in value.shape[1:])
    return None


def _parameter_of(key: str) -> str | None:
    found = LAYERWISE.match(key)
    return None if found is None else found[2]
