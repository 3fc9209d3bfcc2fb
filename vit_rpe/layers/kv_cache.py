"""The keys and values a causal model keeps between decoding steps.

Keys are kept as they leave the projection (after qk-norm), **before rotation**: every step builds the position terms
for its own query grid and the whole key grid, so any encoding works from one cache and nothing in it goes stale.

Legend: B batch, H heads, D head width, T tokens so far.
"""

from __future__ import annotations

import torch
from torch import Tensor


class LayerCache:
    """Keys and values of one attention layer, each (B, H, T, D); empty at first."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def length(self) -> int:
        """T."""
        return 0 if self.keys is None else self.keys.shape[2]

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the newest tokens (B, H, n, D) and return all of them, (B, H, T + n, D).

        Raises:
            ValueError: another batch or model than that of the tokens before.
        """
        if self.keys is not None and self.values is not None:
            held, new = ((t.shape[0], t.shape[1], t.shape[3]) for t in (self.keys, keys))
            if held != new:
                raise ValueError(
                    f"this cache holds (batch, heads, head width) {held}, got tokens of {new}: make a new one"
                )
            keys = torch.cat([self.keys, keys], dim=2)
            values = torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values


class DecodingCache:
    """What a whole model keeps: one :class:`LayerCache` a layer.

    Args:
        num_layers: attention layers.
        context: the context limit, the most tokens that will be decoded; part of every grid as its ``extent``.
    """

    def __init__(self, num_layers: int, context: int) -> None:
        self.layers = [LayerCache() for _ in range(num_layers)]
        self.context = context

    @property
    def length(self) -> int:
        """Tokens decoded so far."""
        return self.layers[0].length if self.layers else 0
