"""What ``load_state_dict`` accepts beyond an exact match, and what it never does silently.

* index buffers that older files carry are dropped;
* a shared encoding fills every layer, layerwise ones are averaged into a shared one (with a warning unless equal);
* a learned embedding of another grid is resampled where a table in the same weights tells that grid, else refused.

Tables of another grid are resampled by the encodings themselves, which also say, with ``strict=False``, that they keep
the values they had.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vit_rpe.encodings import find_encodings
from vit_rpe.layers.absolute import resample_embedding
from vit_rpe.models.vision.embed import embedded_prefix

if TYPE_CHECKING:
    from vit_rpe.models.vision.vit import VisionTransformer

DERIVED_BUFFERS = ("relative_position_index", "attn_mask")
PLACE = re.compile(r"^(blocks\.(?P<layer>\d+)\.attn\.)?rpe\.(parts\.(?P<name>\w+)\.)?(?P<parameter>(?!parts\.).+)$")


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
    if rows is None or model.pos_embed is None or rows.shape[2] != model.pos_embed.shape[2]:
        return
    grid, num_prefix = grid_of_tables(model, fitted), embedded_prefix(model)
    if grid is None and rows.shape == model.pos_embed.shape:
        return
    if grid is None or rows.shape[1] != num_prefix + prod(grid):
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


def fit_sharing(weights: dict[str, Any], expected: Iterable[str]) -> dict[str, Any]:
    """Turn shared encodings into layerwise ones or the other way, wherever the model expects that.

    Where several encodings live together, each is found under its name; the same one may live alone on the other side.
    """
    fitted = dict(weights)
    places = {key: place for key in (*weights, *expected) if (place := PLACE.match(key)) is not None}
    names = {key: place["name"] for key, place in places.items()}
    for key in set(expected) - set(weights):
        if key not in places:
            continue
        shared = places[key]["layer"] is None
        found = [
            name
            for name in weights
            if name in places
            and (places[name]["layer"] is None) != shared
            and places[name]["parameter"] == places[key]["parameter"]
            and (None in (names[name], names[key]) or names[name] == names[key])
        ]
        if len({names[name] for name in found}) != 1:  # nothing, or encodings that cannot be told apart
            continue
        fitted[key] = average([weights[name] for name in found], key)
        for name in found:
            fitted.pop(name, None)
    return fitted


def average(layers: Sequence[Tensor], key: str) -> Tensor:
    """The mean of one parameter over the layers; bit for bit theirs where they are equal, with a warning where not."""
    if all(torch.equal(layer, layers[0]) for layer in layers):
        return layers[0]
    warnings.warn(f"{key}: the layers of the weights differ; the shared encoding gets their mean", stacklevel=3)
    return torch.stack(list(layers)).mean(0)


def grid_of_tables(model: nn.Module, weights: dict[str, Any]) -> tuple[int, ...] | None:
    """The token grid that tables in the weights were made for, as the model's own encodings read them."""
    for path, encoding in find_encodings(model):
        own = {name: weights.get(f"{path}.{name}") for name, _ in encoding.named_parameters()}
        grid = encoding.grid_of({name: value for name, value in own.items() if value is not None})
        if grid is not None:
            return grid
    return None
