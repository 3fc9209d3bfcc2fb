"""From a timm model to the arguments of ours that compute the same function.

Everything is read from the built model, not from its name, so that a model with changed arguments is described too.
What ours does not have is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from timm.layers import AttentionPoolLatent, PatchEmbed
from timm.models import beit, eva, vision_transformer, vision_transformer_relpos
from torch import nn

from vit_rpe.encodings import Spec, parse_specs
from vit_rpe.models.exchange.parts import (
    cannot_express,
    drop_rate,
    mlp_args,
    name_of,
    norm_args,
    require,
    require_foreign,
    require_plain,
)
from vit_rpe.models.exchange.positions import Layout, beit_position, eva_position, relpos_position

BLOCKS: dict[type[nn.Module], tuple[type[nn.Module], ...]] = {
    vision_transformer.VisionTransformer: (vision_transformer.Block,),
    vision_transformer_relpos.VisionTransformerRelPos: (vision_transformer_relpos.RelPosBlock,),
    beit.Beit: (beit.Block,),
    eva.Eva: (eva.EvaBlock,),
}


@dataclass(frozen=True)
class Description:
    """A timm model as arguments of :class:`vit_rpe.VisionTransformer`.

    Attributes:
        args: all arguments, JSON-able; ``rpe`` names the model's own encoding.
        layout: how its rotary weights are laid out.
    """

    args: dict[str, Any]
    layout: Layout

    @property
    def trained_with(self) -> frozenset[str]:
        """Names of its encodings."""
        return frozenset(spec["name"] for spec in parse_specs(self.args["rpe"]))

    def args_for(self, rpe: Spec | Sequence[Spec] | None) -> dict[str, Any]:
        """All arguments with ``rpe`` for the model's own encoding (None: its own); only that one stays shared."""
        if rpe is None:
            return dict(self.args)
        kept = self.trained_with & {spec["name"] for spec in parse_specs(rpe)}
        return {**self.args, "rpe": rpe, "rpe_shared": bool(kept) and self.args.get("rpe_shared", False)}


def describe(model: Any) -> Description:
    """Describe a timm model.

    Raises:
        ValueError: no model, one of ours, or one that has no counterpart here, or a part without; the message says
            which.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"expected a timm model or the name of one, got {model!r}")
    name = name_of(model)
    require_foreign(model)
    if type(model) not in BLOCKS:
        known = ", ".join(sorted(kind.__name__ for kind in BLOCKS))
        raise ValueError(f"{name} is a {type(model).__name__}: only plain {known} models of timm can be converted")
    blocks: Any = model.blocks
    for block in blocks:
        require(type(block) in BLOCKS[type(model)], name, f"blocks of type {type(block).__name__}")
    require_plain(model, name)
    args = {**_stem(model, name), **_blocks(model, name), **_head(model, name)}
    if isinstance(model, vision_transformer_relpos.VisionTransformerRelPos):
        rpe, layout = relpos_position(model, name)
    elif isinstance(model, beit.Beit):
        rpe, layout = beit_position(model, name)
    elif isinstance(model, eva.Eva):
        rpe, layout = eva_position(model, name)
    else:
        rpe, layout = {"rpe": "none"}, Layout()
    return Description({**args, **rpe}, layout)


def _stem(model: Any, name: str) -> dict[str, Any]:
    embed = model.patch_embed
    require(type(embed) is PatchEmbed, name, f"a patch embedding of type {type(embed).__name__}")
    require(isinstance(embed.norm, nn.Identity), name, "a norm inside the patch embedding")
    pre_norm = not isinstance(getattr(model, "norm_pre", nn.Identity()), nn.Identity)
    require((embed.proj.bias is None) == pre_norm, name, "a patch embedding bias that does not go with its pre-norm")
    reg_token = getattr(model, "reg_token", None)
    return {
        "img_size": tuple(embed.img_size),
        "patch_size": tuple(embed.patch_size),
        "in_chans": embed.proj.in_channels,
        "embed_dim": model.embed_dim,
        "class_token": model.cls_token is not None,
        "reg_tokens": 0 if reg_token is None else reg_token.shape[1],
        "pos_embed": "none" if getattr(model, "pos_embed", None) is None else "learned",
        "no_embed_class": bool(getattr(model, "no_embed_class", False)),
        "pre_norm": pre_norm,
        "dynamic_img_size": bool(getattr(model, "dynamic_img_size", False)),
        "dynamic_img_pad": bool(embed.dynamic_img_pad),
        "pos_drop_rate": drop_rate(getattr(model, "pos_drop", None)),
        "patch_drop_rate": float(getattr(getattr(model, "patch_drop", None), "prob", 0.0)),
    }


def _blocks(model: Any, name: str) -> dict[str, Any]:
    block = model.blocks[0]
    attn = block.attn
    expected = {vision_transformer.Attention, vision_transformer_relpos.RelPosAttention, beit.Attention}
    expected |= {eva.EvaAttention, eva.AttentionRope}
    require(type(attn) in expected, name, f"attention of type {type(attn).__name__}")
    dim, heads = model.embed_dim, attn.num_heads
    require(attn.proj.in_features == dim == heads * (dim // heads), name, "heads that do not fill the width")
    require(getattr(attn, "num_kv_heads", heads) == heads, name, "grouped-query attention (num_kv_heads)")
    require(getattr(attn, "gate", None) is None, name, "a gate on the attention output")
    q_norm = getattr(attn, "q_norm", nn.Identity())
    scale_norm = getattr(attn, "norm", nn.Identity())
    fused = attn.qkv is not None
    if getattr(attn, "q_bias", None) is not None:
        qkv_bias = True
    else:
        qkv_bias = (attn.qkv if fused else attn.q_proj).bias is not None
    first_scale, second_scale = _scale(block, "ls1", "gamma_1"), _scale(block, "ls2", "gamma_2")
    require((first_scale is None) == (second_scale is None), name, "LayerScale on one of the two branches only")
    mlp = mlp_args(name, block.mlp, dim)
    proj_bias = attn.proj.bias is not None
    require((block.mlp.fc2.bias is not None) == proj_bias, name, "biases in one of attention projection and MLP only")
    norms = [norm for module in model.modules() for norm in _norms_of(module)]
    return {
        "depth": len(model.blocks),
        "num_heads": heads,
        "qkv_bias": qkv_bias,
        "proj_bias": proj_bias,
        "qk_norm": not isinstance(q_norm, nn.Identity),
        "scale_attn_norm": not isinstance(scale_norm, nn.Identity),
        "init_values": first_scale,
        "proj_drop_rate": drop_rate(attn.proj_drop),
        "attn_drop_rate": drop_rate(attn.attn_drop),
        "drop_path_rate": drop_rate(model.blocks[-1].drop_path1),
        **mlp,
        **norm_args(name, norms),
    }


def _scale(block: Any, layer: str, parameter: str) -> float | None:
    """The initial value of a LayerScale, in either of timm's two spellings; None where there is none."""
    scale = getattr(block, layer, None)
    if scale is not None and not isinstance(scale, nn.Identity):
        return float(scale.init_values)
    if getattr(block, parameter, None) is not None:
        return float(block.init_values)
    return None


def _norms_of(module: nn.Module) -> list[nn.Module]:
    """The norms that are direct children of a module, by timm's attribute names."""
    names = ("norm", "norm1", "norm2", "norm_pre", "fc_norm", "q_norm", "k_norm")
    found = [getattr(module, name, None) for name in names]
    return [norm for norm in found if isinstance(norm, nn.Module)]


def _head(model: Any, name: str) -> dict[str, Any]:
    before = not isinstance(model.norm, nn.Identity)
    behind = not isinstance(model.fc_norm, nn.Identity)
    require(not (before and behind), name, "norms before and behind the pooling (norm and fc_norm)")
    pool = model.global_pool
    require(pool in ("", "avg", "avgmax", "max", "token", "map"), name, f"global_pool={pool!r}")
    attn_pool = getattr(model, "attn_pool", None)
    include_prefix = bool(getattr(model, "pool_include_prefix", False))
    if attn_pool is not None:
        block = model.blocks[0]
        alike = (
            type(attn_pool) is AttentionPoolLatent
            and attn_pool.num_heads == block.attn.num_heads
            and attn_pool.mlp.fc1.out_features == getattr(getattr(block.mlp, "fc1", None), "out_features", None)
            and type(attn_pool.mlp.act) is type(block.mlp.act)
            and attn_pool.latent.shape[1] == 1
        )
        if not alike:
            raise cannot_express(name, "an attention pooling of other sizes than its blocks")
        include_prefix = include_prefix or isinstance(model, eva.Eva)
    return {
        "num_classes": model.num_classes,
        "global_pool": pool,
        "pool_include_prefix": include_prefix,
        "final_norm": before or behind,
        "fc_norm": behind,
        "drop_rate": drop_rate(model.head_drop),
    }
