"""The position that a foreign attention brings along, said by our encodings.

Legend: H heads, R rows of a flat table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor

from vit_rpe.encodings import PositionEncoding, Spec, create_encoding
from vit_rpe.position.geometry import TokenGrid


@dataclass(frozen=True)
class OwnPosition:
    """An encoding of ours that says what a layer's own position says.

    Attributes:
        spec: its name and options.
        grid: the native grid of its parameters.
        weights: its parameters by our names.
    """

    spec: Spec
    grid: TokenGrid
    weights: Mapping[str, Tensor] = field(default_factory=dict)

    def encoding(self, num_heads: int, head_dim: int, like: Tensor) -> PositionEncoding:
        """The encoding itself, on the device and in the dtype of ``like``, with copies of the weights."""
        made = create_encoding(self.spec, num_heads, head_dim, self.grid, device=like.device, dtype=like.dtype)
        made.load_state_dict(dict(self.weights))
        return made


def flat_table(table: Tensor, window: tuple[int, int]) -> dict[str, Tensor]:
    """A table (R, H) over offsets, query minus key and row-major, as that of ``bias``: (H, 2h - 1, 2w - 1).

    Raises:
        ValueError: R is not what a window of that size needs.
    """
    lengths = [2 * side - 1 for side in window]
    if table.shape[0] != prod(lengths):
        raise ValueError(f"a table of {table.shape[0]} rows does not fit a window of {window}")
    return {"table": table.T.unflatten(1, lengths).contiguous()}


def linear_weights(weights: Mapping[str, Tensor], first: str, second: str) -> dict[str, Tensor]:
    """The two layers of a position network under the names that ``cpb`` has for them.

    Raises:
        ValueError: one of the layers is wrapped, so that its weights have other names.
    """
    names = {first: "fc1", second: "fc2"}
    wrapped = next((key for key in weights if key.rpartition(".")[0] not in names), None)
    if wrapped is not None:
        raise ValueError(
            f"the position network is read from the layers {first!r} and {second!r}, but one of them is wrapped and "
            f"holds {wrapped!r}: merge the adapter into the layer first"
        )
    return {f"{names[path]}.{name}": value for key, value in weights.items() for path, _, name in [key.rpartition(".")]}


def qkv_bias(layer: Any) -> Tensor | None:
    """q, k and v biases in one; that of k, where it is none, is zero."""
    if layer.q_bias is None:
        return None
    return torch.cat((layer.q_bias, torch.zeros_like(layer.v_bias), layer.v_bias))
