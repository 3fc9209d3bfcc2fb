"""timm's architectures cut down: same kinds of layers and same file of code, few blocks, no width above 1024.

So that models of billions of parameters are compared too; what is left out repeats what is left.
"""

from __future__ import annotations

from typing import Any

from timm.layers import AttentionRope
from timm.models import (
    beit,
    deepseek_vit,
    efficientformer,
    efficientformer_v2,
    efficientvit_msra,
    eva,
    gcvit,
    gemma4_vit,
    levit,
    maxxvit,
    mvitv2,
    qwen3_vit,
    swin_transformer,
    swin_transformer_v2,
    swin_transformer_v2_cr,
    tiny_vit,
    vision_transformer_relpos,
    vision_transformer_sam,
)
from torch import nn

WIDEST = 1024
SEQUENCES = (
    *(beit.Beit, vision_transformer_relpos.VisionTransformerRelPos, qwen3_vit.Qwen3VitClassifier),
    *(gemma4_vit.Gemma4VitClassifier, gemma4_vit.Gemma4VitEncoder, qwen3_vit.Qwen3VitEncoder),
    *(deepseek_vit.DeepseekVitClassifier, deepseek_vit.DeepseekVitEncoder),
)
WINDOWS = (
    swin_transformer.SwinTransformer,
    swin_transformer_v2.SwinTransformerV2,
    swin_transformer_v2_cr.SwinTransformerV2Cr,
)


def reduced_args(model: Any) -> dict[str, Any]:
    """Arguments of timm that cut an architecture down: two blocks a stage (a plain and a shifted or grouped one).

    Args:
        model: built at full size, on the meta device will do.

    Raises:
        ValueError: a kind of model that is not known here.
    """
    if isinstance(model, eva.Eva):
        return _grouped(model)
    if isinstance(model, SEQUENCES):
        return _narrow(getattr(model, "encoder", model))
    if isinstance(model, vision_transformer_sam.VisionTransformerSAM):
        return {**_narrow(model), "global_attn_indexes": (1,)}
    if isinstance(model, WINDOWS):
        return _stages(model)
    if isinstance(model, maxxvit.MaxxVit):
        return {"depths": (1,) * len(model.stages)}  # convolutions in groups bind its widths
    if isinstance(model, tiny_vit.TinyVit):
        return {"depths": (1,) * len(model.stages)}
    if isinstance(model, (levit.Levit, efficientvit_msra.EfficientVitMsra)):
        return {"depth": (1,) * len(model.stages)}
    if isinstance(model, (efficientformer.EfficientFormer, efficientformer_v2.EfficientFormerV2)):
        second = isinstance(model, efficientformer_v2.EfficientFormerV2)
        return {"depths": (1, 1, 2, 2), "num_vit": 1, **({"mlp_ratios": 2} if second else {})}
    if isinstance(model, mvitv2.MultiScaleVit):
        return _pooled(model)
    if isinstance(model, gcvit.GlobalContextVit):
        return {}  # its depths cannot be changed by name, and the largest has 90 million parameters
    raise ValueError(f"no reduced form of {type(model).__name__} is known")


def image_sizes(model: nn.Module) -> list[tuple[int, int]]:
    """A square image and one that is not, in pixels; one of 224 pixels where timm knows that size only."""
    if isinstance(model, efficientformer.EfficientFormer):
        return [(224, 224)]
    if isinstance(model, (gemma4_vit.Gemma4VitClassifier, gemma4_vit.Gemma4VitEncoder)):
        return [(96, 96), (96, 144)]  # nine patches become one token
    patch = getattr(getattr(model, "encoder", model), "patch_embed", None)
    sides = getattr(patch, "patch_size", 16)
    side = int(sides if isinstance(sides, int) else sides[0])
    few = side >= 14 and not isinstance(
        model, (efficientvit_msra.EfficientVitMsra, efficientformer_v2.EfficientFormerV2)
    )
    unit = side * (4 if few else 16)
    return [(unit, unit), (unit, 3 * unit // 2)]


def _narrow(model: Any, *, multiple: int = 1) -> dict[str, Any]:
    """Two blocks, and heads left out until the width is at most :data:`WIDEST` and their number a ``multiple``."""
    attn = model.blocks[0].attn
    width = model.embed_dim // attn.num_heads
    heads = min(attn.num_heads, WIDEST // width) // multiple * multiple
    return {"depth": 2, "embed_dim": heads * width, "num_heads": heads}


def _grouped(model: Any) -> dict[str, Any]:
    """The same with a second block of grouped queries where the model has such blocks."""
    if not isinstance(model.blocks[0].attn, AttentionRope):
        return _narrow(model)
    groups = max(block.attn.num_kv_groups for block in model.blocks)
    small = _narrow(model, multiple=groups)
    return {**small, "num_kv_heads": (small["num_heads"], small["num_heads"] // groups)}


def _stages(model: nn.Module) -> dict[str, Any]:
    stages: Any = model.layers if hasattr(model, "layers") else model.stages
    heads = [stage.blocks[0].attn.num_heads for stage in stages]
    width = stages[0].blocks[0].attn.qkv.in_features
    while width << (len(heads) - 1) > WIDEST:
        width, heads = width // 2, [count // 2 for count in heads]
    return {"depths": (2,) * len(heads), "embed_dim": width, "num_heads": tuple(heads)}


def _pooled(model: mvitv2.MultiScaleVit) -> dict[str, Any]:
    """A configuration under a name of its own, because timm takes those of MViTv2 by name only."""
    stages: Any = model.stages
    width, heads = model.patch_embed.proj.out_channels, stages[0].blocks[0].attn.num_heads
    while width << (len(stages) - 1) > WIDEST and heads % 2 == 0:
        width, heads = width // 2, heads // 2
    small = mvitv2.MultiScaleVitCfg(
        depths=(2,) * len(stages),
        embed_dim=width,
        num_heads=heads,
        expand_attn=model.expand_attn,
        use_cls_token=model.cls_token is not None,
    )
    name = f"vit_rpe: {small}"
    mvitv2.model_cfgs[name] = small
    return {"cfg_variant": name}
