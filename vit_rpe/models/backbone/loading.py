"""What ``load_state_dict`` makes of weights from another size or another sharing, for images and for sequences.

* a table or a learned embedding of another token grid is resampled, a patch kernel of another size too;
* a shared encoding fills every layer, layerwise ones are averaged into a shared one (with a warning unless equal);
* index buffers that older files carry are dropped.

Every route by which weights come in ends here: the tables are resampled by the encodings' own hooks, everything else by
:func:`resample_on_load`, and nothing before them. The grid that weights were made for is never guessed: it is written
beside the weights, by ``state_dict()`` and by what reads files, in the metadata that torch hands to the hook, or a
table tells it by its shape.
"""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import prod
from operator import attrgetter
from typing import Any

import torch
from timm.layers import resample_patch_embed
from torch import Tensor, nn

from vit_rpe.encodings import find_encodings
from vit_rpe.layers.absolute import resample_embedding
from vit_rpe.position.geometry import TokenGrid

Grid = tuple[int, ...]

DERIVED_BUFFERS = ("relative_position_index", "attn_mask")
KERNEL = "patch_embed.proj.weight"
PLACE = re.compile(r"^(blocks\.(?P<layer>\d+)\.attn\.)?rpe\.(parts\.(?P<name>\w+)\.)?(?P<parameter>(?!parts\.).+)$")


def resample_on_load(model: nn.Module, native: Callable[[Any], TokenGrid] = attrgetter("grid")) -> None:
    """Make a model's ``load_state_dict`` fit weights of another size or sharing, and its ``state_dict`` say its own.

    Args:
        native: the native grid of the model.
    """
    model.register_load_state_dict_pre_hook(partial(_before_load, native=native))
    model.register_state_dict_post_hook(partial(_say_grid, native=native))


def _say_grid(
    model: nn.Module,
    state_dict: Any,
    prefix: str,
    local_metadata: dict[str, Any],
    *,
    native: Callable[[Any], TokenGrid],
) -> None:
    """Hook of ``state_dict``: write the model's token grid beside its weights, and the one an encoding was trained on
    where its formula holds that."""
    local_metadata["grid"] = tuple(native(model).size)
    natives = {encoding.name: encoding.remembered().get("native") for _, encoding in find_encodings(model)}
    local_metadata["natives"] = {name: size for name, size in natives.items() if size is not None}


def with_grid(weights: Mapping[str, Tensor], grid: Grid | None) -> OrderedDict[str, Tensor]:
    """The weights of a model together with the token grid they were made for, as ``state_dict()`` gives them."""
    told: Any = OrderedDict(weights)
    told._metadata = OrderedDict({"": {} if grid is None else {"grid": tuple(grid)}})
    return told


def _before_load(
    model: nn.Module,
    state_dict: dict[str, Any],
    prefix: str,
    local_metadata: Mapping[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
    *,
    native: Callable[[Any], TokenGrid],
) -> None:
    """Hook of ``load_state_dict``: change the given (copied) weights to fit the model."""
    own = model.state_dict()
    for key in [key for key in state_dict if key.startswith(prefix)]:
        if key.rsplit(".", 1)[-1] in DERIVED_BUFFERS:
            del state_dict[key]
    given = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
    fitted = fit_sharing(given, own)
    for key in given.keys() - fitted.keys():
        del state_dict[prefix + key]
    source = local_metadata.get("grid") or grid_of_tables(model, fitted)
    natives = local_metadata.get("natives", {})
    for path, encoding in find_encodings(model):
        size = natives.get(encoding.name, None if "native" in (encoding.spec or {}) else source)
        nothing = next(encoding.parameters(), None) is None
        if size is not None and (nothing or any(key.startswith(f"{path}.") for key in fitted)):
            encoding.trained_on(tuple(size))
    try:
        fitted = fit_sizes(fitted, own, source, native(model).size)
    except ValueError as error:
        error_msgs.append(str(error))
        fitted["pos_embed"] = own["pos_embed"]
    state_dict.update({prefix + key: value for key, value in fitted.items()})


def grid_of_tables(model: nn.Module, weights: Mapping[str, Tensor]) -> Grid | None:
    """The token grid that tables in the weights were made for, as the model's own encodings read them."""
    for path, encoding in find_encodings(model):
        names = [name for name, _ in encoding.named_parameters() if f"{path}.{name}" in weights]
        grid = encoding.grid_of({name: weights[f"{path}.{name}"] for name in names})
        if grid is not None:
            return grid
    return None


def fit_sizes(
    weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: Grid | None, target: Sequence[int]
) -> dict[str, Tensor]:
    """Resample the learned embedding and the patch kernel where the model expects another size.

    Args:
        expected: the model's own weights.
        source, target: token grids of the weights (None: not known) and of the model.

    Raises:
        ValueError: an embedding whose grid is not known, or that does not have the rows of its grid.
    """
    fitted = dict(weights)
    rows, own = fitted.get("pos_embed"), expected.get("pos_embed")
    if rows is not None and own is not None and rows.ndim == 3 and rows.shape[2] == own.shape[2]:
        num_prefix = own.shape[1] - prod(target)
        if len(target) == 1:  # a sequence tells its length
            source = (rows.shape[1] - num_prefix,)
        if source is None and rows.shape != own.shape:
            raise ValueError(
                f"pos_embed has {rows.shape[1]} rows, the grid {tuple(target)} with {num_prefix} prefix rows needs "
                f"{own.shape[1]}; the weights do not say their own grid: create the model with the img_size of the "
                "weights, load them, then call set_input_size"
            )
        if source is not None:
            check_rows(rows, source, num_prefix)
            fitted["pos_embed"] = resample_embedding(rows, source, target, num_prefix=num_prefix)
    kernel, own = fitted.get(KERNEL), expected.get(KERNEL)
    if kernel is not None and own is not None and kernel.ndim == own.ndim == 4 and kernel.shape[2:] != own.shape[2:]:
        fitted[KERNEL] = resample_patch_embed(kernel, list(own.shape[2:]))
    return fitted


def check_rows(rows: Tensor, grid: Grid | None, num_prefix: int) -> None:
    """Raise ValueError unless a learned embedding (1, num_prefix + P, C) has the rows of the grid it comes from."""
    if grid is None or rows.shape[1] != num_prefix + prod(grid):
        stored = "is not stored with it" if grid is None else f"is stored as {tuple(grid)}"
        raise ValueError(
            f"pos_embed has {rows.shape[1]} rows with {num_prefix} for prefix tokens, but its grid {stored}: say the "
            "image size it was trained at, pretrained_cfg_overlay={'input_size': (3, height, width)}"
        )


def fit_sharing(weights: Mapping[str, Any], expected: Collection[str]) -> dict[str, Any]:
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


def resized_embedding(embedding: nn.Parameter, source: Sequence[int], target: Sequence[int]) -> nn.Parameter:
    """A learned embedding (1, num_prefix + P, C) of a ``source`` grid as a parameter for a ``target`` grid."""
    num_prefix = embedding.shape[1] - prod(source)
    resampled = resample_embedding(embedding.detach(), source, target, num_prefix=num_prefix)
    return nn.Parameter(resampled.clone(), requires_grad=embedding.requires_grad)
