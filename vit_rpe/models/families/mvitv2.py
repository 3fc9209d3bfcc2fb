"""MViTv2: the whole image, with keys and where a stage begins also queries pooled; decomposed position.

MViTv2: Improved Multiscale Vision Transformers for Classification and Detection, arXiv 2112.01526. A pooled token
stands for as many tokens as its stride, those behind its own place. Queries meet the tables unscaled, and are added to
what they attend to.

Legend: B batch, H heads, D head width, N tokens with prefix, h x w of them without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

import torch
from timm.models import mvitv2
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.layers.linear import steps_of
from vit_rpe.models.families._interface import Family, Place, Sight
from vit_rpe.models.families._own import OwnPosition
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import NOTHING, PositionTerms, RelativeVectors

Size = tuple[int, ...]


class MViTv2(Family):
    """Sequences (B, N, C), and the size of their grid; a class token may stand in front and is not pooled."""

    takes_position = True
    reads_content = False
    layers = (mvitv2.MultiScaleAttention,)
    position_names = ("rel_pos_h", "rel_pos_w")

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight:
        image = tuple(inputs["feat_size"])
        queries, keys = (self.pooled(layer, name, image) for name in ("pool_q", "pool_k"))
        return Sight(image, queries, keys, ((0,) * len(image),))

    def pooled(self, layer: Any, name: str, image: Size) -> TokenGrid:
        """What a pooling leaves of the image, with its stride."""
        prefix = int(layer.has_cls_token)
        pool = getattr(layer, name)
        if pool is None:
            return TokenGrid(image, num_prefix=prefix)
        return TokenGrid(left_by(pool, image), num_prefix=prefix, stride=steps_of(pool).stride, extent=image)

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        """The finer of queries and keys lies without gaps: its neighbours are one step apart, as in the tables."""
        return self.without_gaps(layer, tuple(inputs["feat_size"]))

    def without_gaps(self, layer: Any, image: Size) -> tuple[TokenGrid, TokenGrid]:
        """The grids of an image, in steps of the finer one."""
        q, k = (self.pooled(layer, name, image) for name in ("pool_q", "pool_k"))
        unit = tuple(map(gcd, q.steps, k.steps))
        extent = tuple(-(-side // by) for side, by in zip(image, unit, strict=True))
        return _in_units(q, unit, extent), _in_units(k, unit, extent)

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        if layer.rel_pos_type != "spatial":
            raise ValueError("the size of the image is not known here: the attention has no position of its own")
        size = getattr(layer, "table_grid", None)
        return TokenGrid(self.remains(layer)["table_grid"] if size is None else size, int(layer.has_cls_token))

    def native_grids(self, layer: Any, facts: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        finer = self.native(layer, facts).size
        steps = (self.pooled(layer, name, finer).steps for name in ("pool_q", "pool_k"))
        image = tuple(side * gcd(*by) for side, *by in zip(finer, *steps, strict=True))
        return self.without_gaps(layer, image)

    def remains(self, layer: Any) -> Mapping[str, Any]:
        """The grid that the tables are for."""
        if layer.rel_pos_type != "spatial":
            return {}
        return {"table_grid": tuple((len(getattr(layer, name)) + 1) // 2 for name in self.position_names)}

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition | None:
        if layer.rel_pos_type != "spatial":
            return None
        tables = {name: getattr(layer, name) for name in self.position_names}
        return OwnPosition("decomposed", self.native(layer, facts), self.translate(layer, tables))

    def translate(self, layer: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"table_{axis}": weights[name] for axis, name in enumerate(self.position_names) if name in weights}

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        """At another size than that of the tables timm reads them from their beginning, whatever an offset was there.

        Sizes that a stride does not divide are stretched, and rows rounded down.
        """
        if sight is None or layer.rel_pos_type != "spatial":
            return NOTHING
        parts = []
        for axis, name in enumerate(self.position_names):
            table = getattr(layer, name)
            index = rows(sight.q_grid.size[axis], sight.k_grid.size[axis], table.device)
            parts.append(RelativeVectors(table[None] * layer.head_dim**0.5, index, axis))
        return PositionTerms(on_query=tuple(parts), grids=(sight.q_grid, sight.k_grid))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x, image = inputs["x"], tuple(inputs["feat_size"])
        qkv = layer.qkv(x).unflatten(-1, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        q, k, v = (self.pool(layer, name, part, image) for name, part in zip("qkv", qkv, strict=True))
        grids = self.without_gaps(layer, image)
        size = list(grids[0].size)

        def finish(attended: Tensor) -> Any:
            if layer.residual_pooling:
                attended = attended + q
            return layer.proj(attended.transpose(1, 2).flatten(2)), size

        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=grids[0], k_grid=grids[1])

    def pool(self, layer: Any, name: str, x: Tensor, image: Size) -> Tensor:
        """Queries, keys or values (B, H, N, D) as they meet."""
        pool: nn.Module | None = getattr(layer, f"pool_{name}")
        norm: nn.Module | None = getattr(layer, f"norm_{name}")
        if pool is not None:
            prefix = int(layer.has_cls_token)
            heads = x.shape[:2]
            maps = x[:, :, prefix:].unflatten(2, image).flatten(0, 1).permute(0, 3, 1, 2)
            x = torch.cat([x[:, :, :prefix], pool(maps).flatten(2).mT.unflatten(0, heads)], dim=2)
        return x if norm is None else norm(x)


def left_by(pool: nn.Module, image: Size) -> Size:
    """Tokens per axis behind a pooling or a convolution."""
    axes = zip(image, *steps_of(pool), strict=True)
    return tuple((side + 2 * pad - kernel) // by + 1 for side, kernel, by, pad in axes)


def fit_tables(model: Any, pixels: Size) -> None:
    """Give all layers new tables, for images of that size: timm builds a model for square ones, its layers take any."""
    image = left_by(model.patch_embed.proj, pixels)
    for layer in (module for module in model.modules() if isinstance(module, mvitv2.MultiScaleAttention)):
        seen = MViTv2().sight(layer, Place(), {"feat_size": image})
        for name, *sizes in zip(MViTv2.position_names, seen.q_grid.size, seen.k_grid.size, strict=True):
            table = getattr(layer, name)
            setattr(layer, name, nn.Parameter(table.new_zeros(2 * max(sizes) - 1, table.shape[1])))
        image = seen.q_grid.size


def rows(queries: int, keys: int, device: torch.device) -> Tensor:
    """Which row of its table timm takes for the pairs of one axis, int64 (queries, keys)."""
    q_step, k_step = max(keys / queries, 1.0), max(queries / keys, 1.0)
    q, k = torch.arange(queries, device=device)[:, None] * q_step, torch.arange(keys, device=device) * k_step
    return (q - k + (keys - 1) * k_step).long()


def _in_units(grid: TokenGrid, unit: Size, extent: Size) -> TokenGrid:
    steps = tuple(step // by for step, by in zip(grid.steps, unit, strict=True))
    return TokenGrid(grid.size, grid.num_prefix, stride=steps if max(steps) > 1 else None, extent=extent)
