"""The position that a foreign attention brings along, said by our encodings.

Legend: H heads, R rows of a flat table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from timm.layers import Mlp
from torch import Tensor, nn

from vit_rpe.encodings import PositionEncoding, Spec, create_encoding
from vit_rpe.layers.linear import width_of
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.precision import Placement, is_hooked


@dataclass(frozen=True)
class OwnPosition:
    """An encoding of ours that says what a layer's own position says.

    Attributes:
        spec: its name and options.
        grid: the native grid of its parameters.
        weights: its parameters by our names.
        layers: or all that it computes with, the layer's own modules by our names; adapters among them stay.
    """

    spec: Spec
    grid: TokenGrid
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    layers: Mapping[str, nn.Module] = field(default_factory=dict)

    def encoding(self, num_heads: int, head_dim: int, place: Placement, *, training: bool) -> PositionEncoding:
        """The encoding itself, with copies of the weights, frozen where these are, or with the layers themselves.

        Args:
            place: where the weights do not tell.
            training: the mode it is in; that of the layers stays.
        """
        device, dtype = next(((each.device, each.dtype) for each in self.weights.values()), place)
        made = create_encoding(
            self.spec, num_heads, head_dim, self.grid, device="meta" if self.layers else device, dtype=dtype
        ).train(training)
        for name, layer in self.layers.items():
            setattr(made, name, layer)
        if not self.layers:
            made.load_state_dict(dict(self.weights))
        for name, weight in self.weights.items():
            made.get_parameter(name).requires_grad_(weight.requires_grad)
        return made


def network_position(
    spec: Mapping[str, Any], grid: TokenGrid, network: nn.Module, first: str, second: str
) -> OwnPosition:
    """A network over offsets as ``cpb``: its two linear layers are taken over, or what stands in their place.

    Args:
        first, second: their names in the network; between them is a ReLU.

    Raises:
        ValueError: the network as a whole is another, wrapped or hooked: what calls its layers one by one would not
            see that.
    """
    parts = dict(network.named_children())
    others = [part for name, part in parts.items() if name not in (first, second)]
    acts = [part for part in others if not isinstance(part, (nn.Dropout, nn.Identity))]
    known = type(network) in (nn.Sequential, Mlp) and {first, second} <= parts.keys()
    if not known or [type(part) for part in acts] != [nn.ReLU] or any(map(is_hooked, (network, *others))):
        raise ValueError(
            f"the position network is no longer linear, ReLU, linear with nothing around it, but {network}: put "
            f"adapters and hooks around its layers {first!r} and {second!r}"
        )
    hidden = width_of(parts[first], grid.ndim)
    return OwnPosition(
        {**spec, "name": "cpb", "hidden": hidden}, grid, layers={"fc1": parts[first], "fc2": parts[second]}
    )


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
    """What the two layers of a position network hold, under the names that ``cpb`` has for the layers; the rest stays
    named as it is."""
    named = dict(weights)
    for path, ours in ((first, "fc1"), (second, "fc2")):
        named = {
            ours + key.removeprefix(path) if key.startswith(f"{path}.") else key: each for key, each in named.items()
        }
    return named
