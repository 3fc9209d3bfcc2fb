"""The position that timm keeps in a module of its own, ``rel_pos``: a table over offsets or a network over log offsets.

The table of the public TensorFlow files runs over key minus query.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from timm.layers import RelPosBias, RelPosBiasTf, RelPosMlp
from torch import Tensor

from vit_rpe.models.families._interface import Family
from vit_rpe.models.families._own import OwnPosition, flat_table, linear_weights, network_position

MLP_MODES = {"cr": "log", "swin": "swinv2"}


class WindowSize:
    """The size that timm tells a position of a new window, remembered for the encoding in its place."""

    def __init__(self, window_size: tuple[int, int]) -> None:
        self.window_size = window_size

    def set_window_size(self, window_size: tuple[int, int]) -> None:
        self.window_size = window_size


class RelPosModule(Family):
    """What layers have in common whose ``rel_pos`` describes the position."""

    takes_position = True
    position_names = ("rel_pos",)

    def remains(self, layer: Any) -> Mapping[str, Any]:
        size = None if layer.rel_pos is None else WindowSize(tuple(layer.rel_pos.window_size))
        return {"rel_pos": size}

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition | None:
        position = layer.rel_pos
        if position is None:
            return None
        if isinstance(position, RelPosMlp):
            spec: dict[str, Any] = {"mode": MLP_MODES[position.mode]}
            if position.mode == "swin":
                pretrained, window = tuple(position.pretrained_window_size), tuple(position.window_size)
                spec["native"] = pretrained if pretrained[0] > 0 else window
            return network_position(spec, self.native(layer, facts), position.mlp, "fc1", "fc2")
        if not isinstance(position, (RelPosBias, RelPosBiasTf)):
            raise ValueError(f"a relative position of type {type(position).__name__} is not described")
        table = "relative_position_bias_table"
        weights = self.translate(layer, {f"rel_pos.{table}": getattr(position, table)})
        prefix = "learned" if "prefix_bias" in weights else "zero"
        return OwnPosition({"name": "bias", "prefix": prefix}, self.native(layer, facts), weights)

    def translate(self, layer: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        table = weights.get("rel_pos.relative_position_bias_table")
        if table is None:
            return linear_weights(weights, "rel_pos.mlp.fc1", "rel_pos.mlp.fc2")
        if table.ndim == 3:
            return {"table": table.flip(1, 2)}
        window = tuple(layer.rel_pos.window_size)
        offsets = prod(2 * side - 1 for side in window)
        found = flat_table(table[:offsets], window)
        return found if len(table) == offsets else {**found, "prefix_bias": table[offsets:].T.contiguous()}
