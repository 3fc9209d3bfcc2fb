"""From tokens to logits: last norm, pooling, classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timm.layers import AttentionPoolLatent, Mlp, global_pool_nlc
from torch import Tensor, nn

from vit_rpe.models.vision.checks import check_pool


def build_pooling(
    norm_layer: Any,
    dim: int,
    global_pool: str,
    *,
    final_norm: bool,
    fc_norm: bool | None,
    attention: Mapping[str, Any],
    factory: Mapping[str, Any],
) -> tuple[nn.Module, nn.Module | None, nn.Module]:
    """The norm before the pooling, attention pooling (where ``"map"``), and the norm behind the pooling.

    Args:
        final_norm: one of the two norms, else none.
        fc_norm: the one behind; None: behind averages and maxima.
        attention: further arguments of timm's ``AttentionPoolLatent``.
        factory: device and dtype.
    """
    behind = global_pool in ("avg", "avgmax", "max") if fc_norm is None else fc_norm
    before_pool = norm_layer(dim, **factory) if final_norm and not behind else nn.Identity()
    pool = AttentionPoolLatent(dim, norm_layer=norm_layer, **attention, **factory) if global_pool == "map" else None
    return before_pool, pool, norm_layer(dim, **factory) if final_norm and behind else nn.Identity()


def classifier(dim: int, num_classes: int, mlp_ratio: float | None = None, **factory: Any) -> nn.Module:
    """A linear layer to ``num_classes``, or nothing for 0.

    Args:
        mlp_ratio: two layers instead, with a tanh between and the hidden width over ``dim`` (LookHere's).
    """
    if num_classes == 0:
        return nn.Identity()
    if mlp_ratio is None:
        return nn.Linear(dim, num_classes, **factory)
    return Mlp(dim, int(dim * mlp_ratio), num_classes, act_layer=nn.Tanh, **factory)


def other_pool(global_pool: str, attn_pool: nn.Module | None, class_token: bool) -> nn.Module | None:
    """The attention pooling that is left when a model changes to ``global_pool``.

    Raises:
        ValueError: token pooling without a class token, or adding attention pooling.
    """
    check_pool(global_pool, class_token)
    if global_pool == "map" and attn_pool is None:
        raise ValueError("attention pooling has weights and cannot be added by reset_classifier")
    return attn_pool if global_pool == "map" else None


def pool_tokens(x: Tensor, kind: str, attn_pool: nn.Module | None, num_prefix: int, include_prefix: bool) -> Tensor:
    """Pool the tokens of each image, (B, N, C) to (B, C); the kind ``""`` leaves them as they are."""
    if attn_pool is not None:
        return attn_pool(x if include_prefix else x[:, num_prefix:])
    return global_pool_nlc(x, pool_type=kind, num_prefix_tokens=num_prefix, reduce_include_prefix=include_prefix)
