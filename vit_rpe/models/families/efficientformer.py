"""EfficientFormer and its second version: attention in the last stages of a network of convolutions.

EfficientFormer, arXiv 2206.01191: plain attention over the 7 x 7 tokens of an image of 224 pixels. V2, arXiv
2212.08059: talking heads, in one stage over every second token, and layers that ask for every second token. Of talking
heads a map shows the probabilities that the softmax gives, before they are mixed a second time; an encoding in place of
the table meets the logits before they are mixed.

Legend: B batch, H heads, D width of queries and keys, E of values, h x w tokens of the stage, N of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from timm.models import efficientformer, efficientformer_v2
from torch import Tensor

from vit_rpe.attention import AttentionCall, MixedByLayer
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.layers.linear import steps_of
from vit_rpe.models.families._distances import Distances, as_map, split_heads, split_maps
from vit_rpe.models.families._interface import Layers, Place, Sight, whole_image
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.precision import placement_of


class EfficientFormer(Distances):
    """Tokens (B, N, C); timm builds these layers for one size of image only."""

    layers = (efficientformer.Attention,)

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        return TokenGrid((7, 7))

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight:
        return whole_image(self.native(layer, {}).size)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        qkv = layer.qkv(inputs["x"])
        q, k, v = split_heads(qkv, layer.num_heads, [layer.key_dim, layer.key_dim, layer.val_dim])

        def finish(attended: Tensor) -> Tensor:
            out: Tensor = layer.proj(attended.transpose(1, 2).flatten(2))
            return out

        grid = self.native(layer, {})
        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=grid, k_grid=grid)


class StagesOfMaps(Distances):
    """What the layers of V2 have in common: maps (B, C, h, w)."""

    channels = 1

    def value_width(self, layer: Any) -> int:
        return int(layer.d)


class EfficientFormerV2(StagesOfMaps):
    """The tokens that a stride leaves are neighbours to the position."""

    layers: ClassVar[Layers] = (efficientformer_v2.Attention2d,)
    mixes_heads = True

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (self.native(layer, {}),) * 2

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight:
        image = tuple(inputs["x"].shape[-2:])
        if layer.stride_conv is None:
            return whole_image(image)
        left = TokenGrid(tuple(layer.resolution), stride=steps_of(layer.stride_conv).stride, extent=image)
        return Sight(image, left, left, ((0, 0),))

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        encoding = self.own(layer, {}).encoding(layer.num_heads, layer.key_dim, placement_of(layer), training=False)
        return encoding(*self.grids(layer, Place(), inputs), inputs["x"].device)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        if layer.stride_conv is not None:
            x = layer.stride_conv(x)
        values = layer.v(x)
        q, k, v = _heads(layer, layer.q(x), layer.k(x), values)
        local, grid = layer.v_local(values), self.native(layer, {})

        def finish(attended: Tensor) -> Tensor:
            out = as_map(attended, grid.size) + local
            if layer.upsample is not None:
                out = layer.upsample(out)
            return layer.proj(layer.act(out))

        call = AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=grid, k_grid=grid)
        before, after = (MixedByLayer(mix) for mix in (layer.talking_head1, layer.talking_head2))
        return call._replace(mix_logits=before, mix_weights=after)


class EfficientFormerV2Downsample(StagesOfMaps):
    """Queries are every second token along both axes; heads are not mixed."""

    layers = (efficientformer_v2.Attention2dDownsample,)

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        keys = self.native(layer, {})
        return TokenGrid(tuple(layer.resolution2), stride=(2, 2), extent=keys.size), keys

    def native_grids(self, layer: Any, facts: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return self.grids(layer, Place(), {})

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight:
        queries, keys = self.grids(layer, place, inputs)
        return Sight(keys.size, queries, keys, ((0, 0),))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        values = layer.v(x)
        q, k, v = _heads(layer, layer.q(x), layer.k(x), values)
        local = layer.v_local(values)
        queries, keys = self.grids(layer, Place(), inputs)

        def finish(attended: Tensor) -> Tensor:
            out: Tensor = layer.proj(layer.act(as_map(attended, queries.size) + local))
            return out

        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=queries, k_grid=keys)


def _heads(layer: Any, *maps: Tensor) -> list[Tensor]:
    """Maps (B, H width, h, w) as heads (B, H, N, width)."""
    return [split_maps(each, layer.num_heads, [each.shape[1] // layer.num_heads])[0] for each in maps]
