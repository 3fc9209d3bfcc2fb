"""Converted weights put where a model of ours expects them: every encoding in its layer, every table of its grid.

Encodings added to weights that were trained without them add nothing at first, or say that they cannot.

Legend: H heads, R rows of a flat table, n axes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from math import prod

from torch import Tensor, nn

from vit_rpe.encodings import PositionEncoding, find_encodings
from vit_rpe.models.backbone.loading import Grid, average
from vit_rpe.models.exchange.weights import Weights


def encodings_inside(model: nn.Module) -> Iterator[tuple[str, int | None, PositionEncoding]]:
    """Every encoding of a model: the path of the module, the layer it serves (None: all), and itself."""
    for path, encoding in find_encodings(model):
        found = re.match(r"blocks\.(\d+)\.", path)
        yield path, None if found is None else int(found[1]), encoding


def unflatten_table(table: Tensor, grid: Grid | None) -> dict[str, Tensor]:
    """A flat table (R, H) as ``table`` (H, 2 size_1 - 1, ..., 2 size_n - 1) and, where it has one, ``prefix_bias``.

    Args:
        grid: the grid the table was trained on; never guessed from R, which many grids share.

    Raises:
        ValueError: the grid is unknown, or R rows are not what it needs.
    """
    rows = table.shape[0]
    lengths = None if grid is None else [2 * size - 1 for size in grid]
    if lengths is None or rows - prod(lengths) not in (0, 3):
        raise ValueError(
            f"a relative position table of {rows} rows does not fit "
            + ("a grid that is not stored with it" if grid is None else f"the stored grid {grid}")
            + ": say the image size it was trained at, pretrained_cfg_overlay={'input_size': (3, height, width)}"
        )
    body = table[: prod(lengths)].T.unflatten(1, lengths)
    if rows == prod(lengths):
        return {"table": body.contiguous()}
    return {"table": body.contiguous(), "prefix_bias": table[-3:].T.contiguous()}


def place(
    weights: Weights, model: nn.Module, grid: Grid | None, *, trained_with: frozenset[str] | None
) -> dict[str, Tensor]:
    """A complete ``state_dict`` for ``model`` on the file's grid; encodings that the file does not have start at zero.

    Args:
        weights: from :func:`vit_rpe.models.exchange.weights.rename`.
        grid: the token grid the file was trained on, None if it is not known.
        trained_with: names of the encodings the file was trained with, None if that is not known; those without
            parameters leave no trace in it.

    Raises:
        ValueError: a table that does not fit the grid.
    """
    state = dict(weights.plain)
    unused = {placed.encoding for placed in weights.encodings}
    missing = []
    for path, layer, encoding in encodings_inside(model):
        own = _parameters_of(weights, encoding.name, layer)
        if own:
            unused.discard(encoding.name)
            if encoding.name == "bias":
                own = unflatten_table(own["table"], grid)
            state.update({f"{path}.{name}": value for name, value in own.items()})
        elif next(encoding.parameters(), None) is None:
            if trained_with is not None and encoding.name not in trained_with:
                missing.append((path, encoding))
        elif not any(key.startswith(f"{path}.") for key in state):
            missing.append((path, encoding))
    for name in sorted(unused):
        warnings.warn(f"the weights of {name!r} in the file are left out: the model was built without it", stacklevel=3)
    start_at_zero(encoding for _, encoding in missing)
    for path, encoding in missing:
        state.update({f"{path}.{name}": value for name, value in encoding.state_dict().items()})
    return state


def _parameters_of(weights: Weights, name: str, layer: int | None) -> dict[str, Tensor]:
    """The file's parameters for one encoding; a shared one serves every layer, layerwise ones are averaged."""
    found = {placed: value for placed, value in weights.encodings.items() if placed.encoding == name}
    own = {placed.parameter: value for placed, value in found.items() if placed.layer == layer}
    if own:
        return own
    if layer is not None:
        return {placed.parameter: value for placed, value in found.items() if placed.layer is None}
    return {
        parameter: average([value for placed, value in found.items() if placed.parameter == parameter], name)
        for parameter in {placed.parameter for placed in found}
    }


def start_at_zero(encodings: Iterable[PositionEncoding]) -> None:
    """Make every encoding add nothing; warn once for each kind that cannot, whatever its parameters are."""
    changing = set()
    for encoding in encodings:
        try:
            encoding.zero_()
        except ValueError:
            changing.add(encoding.name)
    for name in sorted(changing):
        warnings.warn(
            f"{name!r} changes the attention from the start: the weights were trained without it, so outputs differ "
            "until the model is fine-tuned",
            stacklevel=4,
        )
