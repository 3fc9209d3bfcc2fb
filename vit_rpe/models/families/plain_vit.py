"""Plain vision transformers: timm's ``Attention`` over all tokens of the image.

Legend: B batch, H heads, D head width, N tokens with prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from timm.layers import Attention, PatchEmbed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position, combine_later
from vit_rpe.models.backbone.position import mask_terms
from vit_rpe.models.families._interface import Family, Place, Sight, whole_image
from vit_rpe.position.geometry import TokenGrid, are_constants


class PlainViT(Family):
    """Every token sees every token; the grid is that of the patch embedding, behind class and register tokens."""

    layers = (Attention,)

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        model = _model(around)
        return {} if model is None else {"num_prefix": model.num_prefix_tokens}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        patch_embed = getattr(_model(around), "patch_embed", None)
        return patch_embed if isinstance(patch_embed, PatchEmbed) else None

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(watched.dynamic_feat_size(tuple(args[0].shape[-2:])))

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        sight = whole_image(place.image, **place.facts)
        length = inputs["x"].shape[1]
        complete = not are_constants(length, *place.image) or length == sight.q_grid.num_tokens
        return sight if complete else None

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        batch, length = x.shape[:2]
        qkv = layer.qkv(x).reshape(batch, length, 3, layer.num_heads, layer.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        gate = None if layer.gate is None else layer.gate(x).sigmoid()

        def finish(attended: Tensor) -> Tensor:
            out = layer.norm(attended.transpose(1, 2).flatten(2))
            return layer.proj_drop(layer.proj(out if gate is None else out * gate))

        masks = mask_terms(
            _mask(inputs, length, x.device), TokenGrid((length,)), causal=False, window=None, batch=batch, device=None
        )
        return AttentionCall(
            layer.q_norm(q),
            layer.k_norm(k),
            v,
            position if masks.bias is None else combine_later(masks._replace(visible=None), position),
            masks.visible,
            layer.scale,
            finish,
            dropout_p=layer.attn_drop.p if layer.training else 0.0,
            q_grid=None if sight is None else sight.q_grid,
            k_grid=None if sight is None else sight.k_grid,
        )


def _model(around: Sequence[nn.Module]) -> VisionTransformer | None:
    return next((module for module in around if isinstance(module, VisionTransformer)), None)


def _mask(inputs: Mapping[str, Any], length: int, device: torch.device) -> Tensor | None:
    """The layer's mask with four axes; what is missing on the left is the same for all, as in torch's attention."""
    if inputs.get("is_causal"):
        return torch.ones(1, 1, length, length, dtype=torch.bool, device=device).tril()
    mask = inputs.get("attn_mask")
    return None if mask is None else mask[(None,) * (4 - mask.ndim)]
