"""From tokens to logits: last norm, pooling, classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timm.layers import AttentionPoolLatent, global_pool_nlc
from torch import Tensor, nn

from vit_rpe.models.backbone.remember import remember_args
from vit_rpe.models.vision.checks import check_pool

if TYPE_CHECKING:
    from vit_rpe.models.vision.vit import VisionTransformer


def build_head(
    model: VisionTransformer,
    global_pool: str,
    *,
    final_norm: bool,
    fc_norm: bool | None,
    num_heads: int,
    mlp_ratio: float,
    norm_layer: Any,
    act_layer: Any,
    factory: dict[str, Any],
) -> None:
    """Add ``norm``, ``attn_pool``, ``fc_norm`` and ``head`` to a model; one norm, before or behind the pooling."""
    dim = model.embed_dim
    behind = global_pool in ("avg", "avgmax", "max") if fc_norm is None else fc_norm
    model.norm = norm_layer(dim, **factory) if final_norm and not behind else nn.Identity()
    model.attn_pool = None
    if global_pool == "map":
        model.attn_pool = AttentionPoolLatent(
            dim, num_heads=num_heads, mlp_ratio=mlp_ratio, norm_layer=norm_layer, act_layer=act_layer, **factory
        )
    model.fc_norm = norm_layer(dim, **factory) if final_norm and behind else nn.Identity()
    model.head = nn.Linear(dim, model.num_classes, **factory) if model.num_classes > 0 else nn.Identity()


def pool_tokens(model: VisionTransformer, x: Tensor, pool_type: str | None) -> Tensor:
    """Tokens (B, N, C) to (B, C), or to themselves for ``""``."""
    if model.attn_pool is not None:
        return model.attn_pool(x if model.pool_include_prefix else x[:, model.num_prefix_tokens :])
    return global_pool_nlc(
        x,
        pool_type=model.global_pool if pool_type is None else pool_type,
        num_prefix_tokens=model.num_prefix_tokens,
        reduce_include_prefix=model.pool_include_prefix,
    )


def reset_head(model: VisionTransformer, num_classes: int, global_pool: str | None) -> None:
    """Replace the classifier, and the pooling where one is given; the norm stays where it is.

    Raises:
        ValueError: token pooling without a class token, or adding attention pooling.
    """
    if global_pool is not None:
        check_pool(global_pool, model.has_class_token)
        if global_pool == "map" and model.attn_pool is None:
            raise ValueError("attention pooling has weights and cannot be added by reset_classifier")
        if global_pool != "map":
            model.attn_pool = None
        model.global_pool = global_pool
        remember_args(model, fc_norm=not isinstance(model.fc_norm, nn.Identity))
    model.num_classes = num_classes
    weight = model.patch_embed.proj.weight
    model.head = (
        nn.Linear(model.embed_dim, num_classes, device=weight.device, dtype=weight.dtype)
        if num_classes > 0
        else nn.Identity()
    )
    model.head.train(model.training)
