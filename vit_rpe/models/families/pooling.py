"""Attention that pools an image: class attention of CaiT and XCiT, and timm's head with learned queries.

Going deeper with Image Transformers, arXiv 2103.17239; XCiT, arXiv 2106.09681.

Legend: B batch, H heads, D head width, N tokens with prefix, L queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from timm.layers import AttentionPoolLatent, AttentionPoolPrr
from timm.models import cait, eva, naflexvit, vision_transformer, xcit
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Place, Sight, whole_image
from vit_rpe.models.families._sequence import WholeSequence, sequence_call
from vit_rpe.position.geometry import TokenGrid


class Pooling(WholeSequence):
    """What they have in common: queries that are no patches."""

    native = Family.native

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        length = inputs["x"].shape[1]
        num_prefix = 0 if length == prod(place.image) else place.facts["num_prefix"]  # some pool the patches alone
        whole = whole_image(place.image, num_prefix)
        if length != whole.k_grid.num_tokens:
            return None
        return Sight(whole.image, TokenGrid((self.num_queries(layer),)), whole.k_grid, whole.origins, pools=True)

    def num_queries(self, layer: Any) -> int:
        """L."""
        return 1


class ClassAttention(Pooling):
    """The class token asks, all tokens answer."""

    layers = (cait.ClassAttn,)
    hosts = (xcit.Xcit, cait.Cait)

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        return {**super().facts(layer, around), "num_prefix": 1, "class_token": True}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return getattr(self.host(around), "patch_embed", None)

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...] | None:
        if isinstance(watched, xcit.ConvPatchEmbed):
            return tuple(-(-side // watched.patch_size) for side in args[0].shape[-2:])
        return super().image_of(watched, args)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        parts = (layer.q(x[:, :1]), layer.k(x), layer.v(x))
        q, k, v = (part.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2) for part in parts)

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.proj(attended.transpose(1, 2).flatten(2)))

        dropout_p = layer.attn_drop.p if layer.training else 0.0
        return pooled(q, k, v, layer.scale, finish, sight, position, dropout_p=dropout_p)


class LatentPool(Pooling):
    """Learned queries; behind the blocks of plain, rotary and perception encoders."""

    layers = (AttentionPoolLatent,)
    hosts = (vision_transformer.VisionTransformer, eva.Eva, naflexvit.NaFlexVit)

    def num_queries(self, layer: Any) -> int:
        return int(layer.latent_len)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"] if layer.pos_embed is None else inputs["x"] + layer.pos_embed[None].to(inputs["x"].dtype)
        q = layer.q(layer.latent.expand(len(x), -1, -1))
        q = layer.q_norm(q.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2))
        k, v = layer.kv(x).unflatten(-1, (2, layer.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

        def finish(attended: Tensor) -> Tensor:
            out = layer.proj_drop(layer.proj(attended.transpose(1, 2).flatten(2)))
            if layer.mlp is not None:
                out = out + layer.mlp(layer.norm(out))
            if layer.pool == "token":
                return out[:, 0]
            return out.mean(dim=1) if layer.pool == "avg" else out

        return pooled(q, layer.k_norm(k), v, layer.scale, finish, sight, position, mask=inputs.get("attn_mask"))


class RefiningPool(WholeSequence):
    """Tokens attend to each other once more, without parameters (patch representation refinement), then are pooled."""

    layers = (AttentionPoolPrr,)
    hosts = (vision_transformer.VisionTransformer,)
    native = Family.native

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = layer.pre_norm(inputs["x"]).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)

        def finish(attended: Tensor) -> Tensor:
            out: Tensor = layer.post_norm(attended.transpose(1, 2).flatten(2))
            return out[:, 0] if layer.pool == "token" else out.mean(dim=1)

        return sequence_call(layer, (x, x, x), finish, {}, sight, position, dropout_p=0.0)


def pooled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    finish: Any,
    sight: Sight | None,
    position: Position,
    *,
    mask: Tensor | None = None,
    **options: Any,
) -> AttentionCall:
    """The call of q (B, H, L, D), and k and v of all tokens; ``mask`` (B or 1, 1, L or 1, N) is True for what is seen,
    or 0, and the lowest number or minus infinity for what is not.

    Raises:
        ValueError: a mask with other values.
    """
    grids = (None, None) if sight is None else (sight.q_grid, sight.k_grid)
    visible = mask
    if mask is not None and mask.dtype != torch.bool:
        visible = mask == 0
        if bool((~visible & (mask > torch.finfo(mask.dtype).min)).any()):
            raise ValueError("a mask of an attention pool that adds to the logits is not described")
    return AttentionCall(q, k, v, position, visible, scale, finish, q_grid=grids[0], k_grid=grids[1], **options)
