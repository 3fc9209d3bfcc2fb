"""timm's attention pooling of maps of features, as in the residual networks of CLIP: one token more asks and answers.

CLIP, arXiv 2103.00020. The token before the patches is a class token or the mean of the patches; all tokens attend to
all, and the head keeps that token alone, or the patches.

Legend: B batch, H heads, D head width, N tokens with the one before them, h x w patches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from timm.layers import AttentionPool2d, RotAttentionPool2d, resample_abs_pos_embed
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Place, Sight, whole_image
from vit_rpe.models.families.rotary import by_axis, rotation_terms


class PooledMap(Family):
    """Maps (B, C, h, w)."""

    channels = 1

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        return {"num_prefix": 1, "class_token": True}

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight:
        return whole_image(tuple(inputs["x"].shape[-2:]), 1)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        image = tuple(inputs["x"].shape[-2:])
        x = inputs["x"].flatten(2).mT
        first = x.mean(dim=1, keepdim=True) if layer.cls_token is None else layer.cls_token.expand(len(x), -1, -1)
        x = self.placed(layer, torch.cat([first, x], dim=1), image)
        parts = (layer.q(x), layer.k(x), layer.v(x)) if layer.qkv is None else layer.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2) for part in parts)
        q, k = self.turned(layer, q), self.turned(layer, k)

        def finish(attended: Tensor) -> Tensor:
            out = layer.drop(attended.transpose(1, 2).flatten(2))
            if not inputs.get("pre_logits", False):
                out = layer.proj(out)
            return out[:, 0] if layer.pool_type == "token" else out[:, 1:].mT.unflatten(2, image)

        grid = whole_image(image, 1).q_grid
        return AttentionCall(q, k, v, position, None, layer.scale, finish, q_grid=grid, k_grid=grid)

    @abstractmethod
    def placed(self, layer: Any, x: Tensor, image: tuple[int, ...]) -> Tensor:
        """Tokens (B, N, C) with an embedding of their places."""

    @abstractmethod
    def turned(self, layer: Any, x: Tensor) -> Tensor:
        """Queries or keys (B, H, N, D) with channels in our order."""


class EmbeddedPool(PooledMap):
    """A learned embedding, stretched to the size at hand."""

    layers = (AttentionPool2d,)

    def placed(self, layer: Any, x: Tensor, image: tuple[int, ...]) -> Tensor:
        return x + resample_abs_pos_embed(layer.pos_embed[None], image, old_size=layer.feat_size, num_prefix_tokens=1)

    def turned(self, layer: Any, x: Tensor) -> Tensor:
        return x


class RotaryPool(PooledMap):
    """Queries and keys of patches turned by angles."""

    layers = (RotAttentionPool2d,)

    def placed(self, layer: Any, x: Tensor, image: tuple[int, ...]) -> Tensor:
        return x

    def turned(self, layer: Any, x: Tensor) -> Tensor:
        return by_axis(x, layer.rotate_half, width_first=False)

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        rope = layer.pos_embed.get_embed(tuple(inputs["x"].shape[-2:]))
        together = torch.cat(rope, dim=-1) if isinstance(rope, tuple) else rope
        return rotation_terms(together, 1, rotate_half=layer.rotate_half)
