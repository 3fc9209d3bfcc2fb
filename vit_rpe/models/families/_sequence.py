"""What attention over all tokens of the image has in common: the grid is that of the patch embedding, behind prefix
tokens.

Legend: B batch, H heads, D head width, N tokens with prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from timm.layers import HybridEmbed, PatchEmbed
from timm.models.naflexvit import NaFlexEmbeds, NaFlexVit
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position, combine_later
from vit_rpe.models.backbone.position import mask_terms
from vit_rpe.models.families._interface import Family, Place, Sight, whole_image
from vit_rpe.models.families._patches import grid_of_coordinates
from vit_rpe.position.geometry import TokenGrid, are_constants


class WholeSequence(Family):
    """Every token sees every token of (B, N, C)."""

    needs_image = True
    hosts: ClassVar[tuple[type[nn.Module], ...]]
    """The models that hold such layers and know the patch embedding."""

    def host(self, around: Sequence[nn.Module]) -> Any:
        """The model around a layer; None where there is none of :attr:`hosts`."""
        return next((module for module in around if isinstance(module, self.hosts)), None)

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        model = self.host(around)
        if model is None:
            return {}
        embed = _embedding(model)
        known = isinstance(embed, (PatchEmbed, HybridEmbed)) and embed.grid_size is not None
        size = tuple(embed.grid_size) if known else None
        return {"num_prefix": getattr(model, "num_prefix_tokens", 0), "image": size}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        embed = _embedding(self.host(around))
        return embed if isinstance(embed, (PatchEmbed, HybridEmbed, NaFlexEmbeds)) else None

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...] | None:
        if isinstance(watched, NaFlexEmbeds) and len(args) > 1 and args[1] is not None:
            return grid_of_coordinates(args[1])
        return tuple(watched.dynamic_feat_size(tuple(args[0].shape[-2:])))

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        sight = whole_image(place.image, place.facts["num_prefix"])
        length = inputs[self.tokens[0]].shape[1]
        complete = not are_constants(length, *place.image) or length == sight.q_grid.num_tokens
        return sight if complete else None

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        if facts.get("image") is None:
            raise ValueError("the size of the image is not known here: its patch embedding has no fixed grid")
        return TokenGrid(facts["image"], num_prefix=facts["num_prefix"])


def _embedding(model: Any) -> Any:
    """What makes patches of an image."""
    return model.embeds if isinstance(model, NaFlexVit) else getattr(model, "patch_embed", None)


def sequence_call(
    layer: Any,
    qkv: tuple[Tensor, Tensor, Tensor],
    finish: Callable[[Tensor], Tensor],
    inputs: Mapping[str, Any],
    sight: Sight | None,
    position: Position,
    *,
    scale: float | None = None,
    dropout_p: float | None = None,
) -> AttentionCall:
    """The call of such a layer, with the ``attn_mask`` and ``is_causal`` among its inputs.

    ``scale`` and ``dropout_p`` are by default what timm's layers call so.
    """
    q, k, v = qkv
    masks = mask_terms(
        _mask(inputs, q.shape[2], q.device),
        TokenGrid((q.shape[2],)),
        causal=False,
        window=None,
        batch=q.shape[0],
    )
    return AttentionCall(
        q,
        k,
        v,
        position if masks.bias is None else combine_later(masks._replace(visible=None), position),
        masks.visible,
        layer.scale if scale is None else scale,
        finish,
        dropout_p=(layer.attn_drop.p if dropout_p is None else dropout_p) if layer.training else 0.0,
        q_grid=None if sight is None else sight.q_grid,
        k_grid=None if sight is None else sight.k_grid,
    )


def _mask(inputs: Mapping[str, Any], length: int, device: torch.device) -> Tensor | None:
    """The layer's mask with four axes; what is missing on the left is the same for all, as in torch's attention."""
    if inputs.get("is_causal"):
        return torch.ones(1, 1, length, length, dtype=torch.bool, device=device).tril()
    mask = inputs.get("attn_mask")
    return None if mask is None else mask[(None,) * (4 - mask.ndim)]
