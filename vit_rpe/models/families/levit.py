"""LeViT and TinyViT.

LeViT, arXiv 2104.01136: the whole image, and layers that ask for every second token of it; TinyViT, arXiv 2207.10666:
windows, the last ones padded.

Legend: B W calls of all samples, H heads, D width of queries and keys, E of values, N tokens of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from timm.models import levit, tiny_vit
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._distances import Distances, as_map, split_heads, split_maps
from vit_rpe.models.families._interface import Layers, Place, Sight
from vit_rpe.models.families._windows import cut
from vit_rpe.position.geometry import TokenGrid


class TinyViT(Distances):
    """Windows of (B W, N, C)."""

    layers = (tiny_vit.Attention,)
    reads_content = True

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
        qkv = layer.qkv(layer.norm(x))
        q, k, v = split_heads(qkv, layer.num_heads, [layer.key_dim, layer.key_dim, layer.val_dim])

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
                return layer.proj(as_map(attended, queries.size))
            return layer.proj(attended.transpose(1, 2).flatten(2))

        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=queries, k_grid=keys)


class LeViTDownsample(LeViT):
    """Queries are every second token along both axes."""

    layers = (levit.AttentionDownsample,)

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        keys = self.native(layer, {})
        size = tuple(-(-side // layer.stride) for side in keys.size)
        return TokenGrid(size, stride=(layer.stride,) * len(size), extent=keys.size), keys

    def native_grids(self, layer: Any, facts: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return self.grids(layer, Place(), {})

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        k, v = _split(layer, layer.kv(x), [layer.key_dim, layer.val_dim])
        (q,) = _split(layer, layer.q(x), [layer.key_dim])
        return self.finished(layer, q, k, v, position)


def _split(layer: Any, projected: Tensor, widths: list[int]) -> list[Tensor]:
    return (split_maps if layer.use_conv else split_heads)(projected, layer.num_heads, widths)
