"""LeViT and TinyViT: a table over distances per axis, and values wider than keys.

LeViT, arXiv 2104.01136: the whole image, and layers that ask for every second token of it; TinyViT, arXiv 2207.10666:
windows, the last ones padded. The bias of a pair is T[h, abs(dh), abs(dw)].

Legend: B W calls of all samples, H heads, D width of queries and keys, E of values, N tokens of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from timm.models import levit, tiny_vit
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Layers, Place, Sight
from vit_rpe.models.families._own import OwnPosition
from vit_rpe.models.families._windows import cut
from vit_rpe.position.geometry import TokenGrid


def mirrored(table: Tensor) -> Tensor:
    """A table over distances (H, h, w) as one over offsets, (H, 2h - 1, 2w - 1)."""
    for dim in (1, 2):
        offsets = torch.arange(1 - table.shape[dim], table.shape[dim], device=table.device)
        table = table.index_select(dim, offsets.abs())
    return table


class Distances(Family):
    """What the layers have in common: the table of a grid of ``resolution`` tokens, flat, row-major.

    Kept as ``bias`` with an entry per offset: the same function, whose signs can come apart in training.
    """

    takes_position = True
    position_names = ("attention_biases", "attention_bias_idxs")

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        return TokenGrid(tuple(layer.resolution))

    def head_width(self, layer: Any) -> int:
        return int(layer.key_dim)

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        weights = self.translate(layer, {"attention_biases": layer.attention_biases})
        return OwnPosition("bias", self.native(layer, facts), weights)

    def translate(self, layer: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        table = weights.get("attention_biases")
        return {} if table is None else {"table": mirrored(table.unflatten(1, tuple(layer.resolution)))}

    def remains(self, layer: Any) -> Mapping[str, Any]:
        return {"attention_bias_cache": {}}


class TinyViT(Distances):
    """Windows of (B W, N, C)."""

    layers = (tiny_vit.Attention,)

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[1:3])

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (self.native(layer, {}),) * 2

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        return None if place.image is None else cut(place.image, tuple(layer.resolution))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        qkv = layer.qkv(layer.norm(x)).unflatten(2, (layer.num_heads, -1)).transpose(1, 2)
        q, k, v = qkv.split([layer.key_dim, layer.key_dim, layer.val_dim], dim=3)

        def finish(attended: Tensor) -> Tensor:
            return layer.proj(attended.transpose(1, 2).flatten(2))

        grid = self.native(layer, {})
        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=grid, k_grid=grid)


class LeViT(Distances):
    """The whole image: (B, N, C), or (B, C, h, w) in the models with convolutions."""

    layers: ClassVar[Layers] = (levit.Attention,)

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        keys = self.native(layer, {})
        return keys, keys

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight:
        image = tuple(layer.resolution)
        queries, keys = self.grids(layer, place, inputs)
        return Sight(image, queries, keys, ((0,) * len(image),))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        q, k, v = _split(layer, layer.qkv(inputs["x"]), [layer.key_dim, layer.key_dim, layer.val_dim])
        return self.finished(layer, q, k, v, position)

    def finished(self, layer: Any, q: Tensor, k: Tensor, v: Tensor, position: Position) -> AttentionCall:
        """The call of these queries, keys and values."""
        queries, keys = self.grids(layer, Place(), {})

        def finish(attended: Tensor) -> Tensor:
            if layer.use_conv:
                return layer.proj(attended.mT.flatten(1, 2).unflatten(2, queries.size))
            return layer.proj(attended.transpose(1, 2).flatten(2))

        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=queries, k_grid=keys)


class LeViTDownsample(LeViT):
    """Queries are every second token along both axes."""

    layers = (levit.AttentionDownsample,)

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        keys = self.native(layer, {})
        size = tuple(-(-side // layer.stride) for side in keys.size)
        return TokenGrid(size, stride=(layer.stride,) * len(size), extent=keys.size), keys

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        k, v = _split(layer, layer.kv(x), [layer.key_dim, layer.val_dim])
        (q,) = _split(layer, layer.q(x), [layer.key_dim])
        return self.finished(layer, q, k, v, position)


def _split(layer: Any, projected: Tensor, widths: list[int]) -> list[Tensor]:
    """(B, N, H sum) or (B, H sum, h, w) as heads (B, H, N, width) of each width."""
    if layer.use_conv:
        heads = projected.flatten(2).unflatten(1, (layer.num_heads, -1)).mT
    else:
        heads = projected.unflatten(2, (layer.num_heads, -1)).transpose(1, 2)
    return list(heads.split(widths, dim=3))
