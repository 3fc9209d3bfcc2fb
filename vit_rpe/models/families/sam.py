"""Segment Anything's image encoder and ViTDet: 14 x 14 windows and a few global layers, decomposed position.

Segment Anything, arXiv 2304.02643; Exploring Plain Vision Transformer Backbones, arXiv 2203.16527. The last windows
are padded, and padded tokens are attended to like others. Queries meet the tables unscaled.

Legend: B W windows of all samples, H heads, D head width, h x w tokens of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from timm.models import vision_transformer_sam
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Layers, Place, Sight, whole_image
from vit_rpe.models.families._own import OwnPosition
from vit_rpe.models.families._windows import cut
from vit_rpe.position.geometry import TokenGrid

STRETCHED = {"name": "decomposed", "resample": "linear"}
"""At another size the tables are stretched linearly, here once and in the originals in every forward."""


class SegmentAnything(Family):
    """Tokens come and go as maps (B W, h, w, C)."""

    takes_position = True
    layers: ClassVar[Layers] = (vision_transformer_sam.Attention,)
    position_names = ("rel_pos_h", "rel_pos_w")

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        block: Any = around[0]
        model = next((each for each in around if isinstance(each, vision_transformer_sam.VisionTransformerSAM)), None)
        embed: Any = None if model is None else model.patch_embed
        image = () if embed is None else tuple(embed.grid_size)
        return {"window": block.window_size, "image": image}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[1:3])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        side = place.facts["window"]
        return cut(place.image, (side, side)) if side > 0 else whole_image(place.image)

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        side = facts["window"]
        return TokenGrid((side, side) if side > 0 else facts["image"])

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        return (TokenGrid(tuple(inputs["x"].shape[1:3])),) * 2

    def head_width(self, layer: Any) -> int:
        return int(layer.head_dim)

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition | None:
        if layer.rope is not None:
            raise ValueError("a rotary position inside Segment Anything's attention is not described")
        if not layer.use_rel_pos:
            return None
        return self.tables(layer)

    def tables(self, layer: Any) -> OwnPosition:
        """The two tables as our encoding."""
        tables = {name: getattr(layer, name) for name in self.position_names}
        grid = TokenGrid(tuple((len(table) + 1) // 2 for table in tables.values()))
        return OwnPosition(STRETCHED, grid, self.translate(layer, tables))

    def own_at(self, layer: Any, sight: Sight) -> OwnPosition | None:
        """At another size timm stretches the tables in every forward."""
        own = self.own(layer, {})
        if own is None or own.grid.size == sight.q_grid.size:
            return own
        tables = zip(own.weights.items(), sight.q_grid.size, strict=True)
        stretched = {
            name: F.interpolate(table.T[None], size=2 * side - 1, mode="linear")[0].T for (name, table), side in tables
        }
        return OwnPosition("decomposed", sight.q_grid, stretched)

    def translate(self, layer: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"table_{axis}": weights[name] for axis, name in enumerate(self.position_names) if name in weights}

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        batch, height, width, _ = x.shape
        qkv = layer.qkv(x).reshape(batch, height * width, 3, layer.num_heads, layer.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.proj(attended.transpose(1, 2).reshape(batch, height, width, -1)))

        grid = TokenGrid((height, width))
        dropout_p = layer.attn_drop.p if layer.training else 0.0
        q, k = layer.q_norm(q), layer.k_norm(k)
        return AttentionCall(
            q, k, v, position, None, layer.scale, finish, dropout_p=dropout_p, q_grid=grid, k_grid=grid
        )
