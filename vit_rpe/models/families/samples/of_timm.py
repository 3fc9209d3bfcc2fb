"""Small models of every family, from timm, with large random weights."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

import timm
import torch
from timm.models import mvitv2
from torch import nn

from vit_rpe.models.families.mvitv2 import fit_tables

SWIN = {"embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4)}
SAM = {"embed_dim": 24, "depth": 2, "num_heads": 3, "global_attn_indexes": (1,), "neck_chans": 8}
VIT = {"embed_dim": 32, "depth": 2, "num_heads": 2}
TINY = {"embed_dims": (8, 16, 32, 32), "depths": (1, 1, 2, 1), "num_heads": (1, 2, 2, 2)}
MAXVIT = {"embed_dim": (32, 64), "depths": (1, 1), "stem_width": 8}
MVIT: dict[str, Any] = {"depths": (1, 2, 2, 1), "embed_dim": 16, "num_heads": 1}
mvitv2.model_cfgs["small"] = mvitv2.MultiScaleVitCfg(**MVIT)
mvitv2.model_cfgs["small_cls"] = mvitv2.MultiScaleVitCfg(
    **MVIT, use_cls_token=True, expand_attn=False, residual_pooling=False
)

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    # stages of 12 x 18 and 6 x 9 tokens: windows of 7 are padded on the first and shrink to 6 x 7 on the second
    "swin": ("swin_tiny_patch4_window7_224", {"img_size": (48, 72), "window_size": 7, **SWIN}),
    "swin-square": ("swin_tiny_patch4_window7_224", {"img_size": 64, "window_size": 4, **SWIN}),
    "swinv2": ("swinv2_tiny_window8_256", {"img_size": (48, 72), "window_size": 5, **SWIN}),
    "swinv2-square": ("swinv2_tiny_window8_256", {"img_size": 64, "window_size": 4, **SWIN}),
    "swinv2-pretrained": (
        "swinv2_base_window12to16_192to256",
        {"img_size": (48, 72), "window_size": 5, "pretrained_window_sizes": (4, 3), **SWIN},
    ),
    "swinv2_cr": ("swinv2_cr_tiny_ns_224", {"img_size": (48, 72), "window_size": 5, **SWIN}),
    "sam": ("samvit_base_patch16", {"img_size": (80, 112), "window_size": 3, **SAM}),
    "sam-square": ("samvit_base_patch16", {"img_size": 96, "window_size": 4, **SAM}),
    "maxvit-mlp": (
        "maxvit_rmlp_pico_rw_256",
        {"img_size": (64, 96), "transformer_window_size": (4, 3), "block_type": ("M", "M"), **MAXVIT},
    ),
    "maxvit-table": (
        "maxvit_pico_rw_256",
        {"img_size": (64, 96), "transformer_window_size": (4, 3), "block_type": ("M", "M"), **MAXVIT},
    ),
    "maxvit-parallel": (
        "maxvit_tiny_pm_256",
        {"img_size": (64, 96), "transformer_window_size": (4, 3), "block_type": ("PM", "PM"), **MAXVIT},
    ),
    "maxvit-tf": (
        "maxvit_tiny_tf_224",
        {"img_size": (64, 96), "transformer_window_size": (4, 3), "block_type": ("M", "M"), **MAXVIT},
    ),
    "maxvit-square": (
        "maxvit_tiny_tf_224",
        {"img_size": 64, "transformer_window_size": (4, 4), "block_type": ("M", "M"), **MAXVIT},
    ),
    "coatnet": ("coatnet_nano_rw_224", {"img_size": (64, 96), "block_type": ("C", "T"), **MAXVIT}),
    "coatnet-mlp": (
        "coatnet_rmlp_nano_rw_224",
        {"img_size": (64, 96), "block_type": ("T", "T"), **MAXVIT, "stem_width": 32},
    ),
    "eva02": ("eva02_tiny_patch14_224", {"img_size": (56, 84), **VIT}),
    "eva02-base": ("eva02_base_patch14_224", {"img_size": (56, 84), **VIT}),
    "rope": ("vit_small_patch16_rope_224", {"img_size": (64, 96), **VIT}),
    "dinov3": ("vit_small_patch16_dinov3", {"img_size": (64, 96), **VIT}),
    "dinov3-square": ("vit_small_plus_patch16_dinov3_qkvb", {"img_size": 64, **VIT}),
    "sapiens2": ("vit_large_patch16_sapiens2", {"img_size": (64, 96), **VIT, "num_kv_heads": (2, 1)}),
    "qwen3": ("qwen3_vit_88m", {"img_size": (64, 96), **VIT}),
    "deepseek": ("deepseek_vit_412m", {"img_size": (56, 84), **VIT}),
    "mvitv2": ("mvitv2_tiny", {"img_size": (64, 96), "cfg_variant": "small"}),
    "mvitv2-cls": ("mvitv2_tiny", {"img_size": (96, 64), "cfg_variant": "small_cls"}),
    # windows of 2 x 3 on stages of 16 x 24, 8 x 12 and 2 x 3 tokens, of 4 x 6 on one of 4 x 6
    "gcvit": ("gcvit_xxtiny", {"img_size": (64, 96), "embed_dim": 16}),
    "gcvit-square": ("gcvit_xxtiny", {"img_size": 64, "embed_dim": 16, "window_size": (4, 2, 4, 2)}),
    "gemma4": (
        "gemma4_vit_167m",
        {
            **{"img_size": (64, 96), **VIT, "head_dim": 16, "intermediate_size": 32, "position_embedding_size": 64},
            "pretrained_cfg_overlay": {"input_size": (3, 64, 96)},  # it takes any size: this one is native
        },
    ),
    "relpos-rpn": ("vit_relpos_medium_patch16_rpn_224", {"img_size": (64, 96), **VIT}),
    "relpos-cls": ("vit_relpos_medium_patch16_cls_224", {"img_size": (64, 96), **VIT}),
    "relpos-table": ("vit_relpos_medium_patch16_cls_224", {"img_size": (64, 96), **VIT, "rel_pos_type": "bias"}),
    "tiny_vit": ("tiny_vit_5m_224", {"img_size": (96, 144), **TINY, "window_sizes": (3, 5, 4, 3)}),
    "levit": ("levit_128s", {"img_size": (128, 192), "embed_dim": (16, 24, 32), "depth": (1, 1, 1)}),
    # stages of 12 x 16, 6 x 8 and 3 x 4 tokens: windows of 7, 6 and 3
    "efficientvit": (
        "efficientvit_m0",
        {
            "img_size": (192, 256),
            "embed_dim": (16, 24, 32),
            "key_dim": (8, 8, 8),
            "num_heads": (2, 3, 2),
            "depth": (1, 1, 1),
        },
    ),
    "efficientformer": (
        "efficientformer_l1",
        {"img_size": 224, "depths": (1, 1, 1, 3), "embed_dims": (8, 8, 16, 24), "num_vit": 2},
    ),
    # stages of 6 x 10 and 3 x 5 tokens; the first attends on every second token
    "efficientformerv2": (
        "efficientformerv2_s0",
        {"img_size": (96, 160), "depths": (1, 1, 2, 2), "embed_dims": (8, 8, 16, 24), "num_vit": 1, "mlp_ratios": 2},
    ),
    "levit-conv": ("levit_conv_128s", {"img_size": (128, 192), "embed_dim": (16, 24, 32), "depth": (1, 1, 1)}),
}
"""A name in timm and the changes that make it small; images are not square unless the name says so."""


TWINS = {"depths": (2, 2, 2, 2), "embed_dims": (12, 12, 24, 24), "num_heads": (2, 2, 3, 3)}
SAM2 = {"embed_dim": 12, "stages": (1, 2, 2, 1), "global_att_blocks": (4,), "window_spec": (8, 4, 6, 7)}
THREE = {"depth": 2, "embed_dim": 24, "num_heads": 3}
POOLED: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "twins": ("twins_svt_small", {"img_size": (64, 96), **TWINS}, (64, 96)),
    "sam2": ("sam2_hiera_tiny", SAM2, (96, 160)),
    "beit": ("beit_base_patch16_224", {"img_size": (64, 96), **THREE}, (64, 96)),
    "relpos": ("vit_relpos_medium_patch16_cls_224", {"img_size": (64, 96), **THREE}, (64, 96)),
    "srelpos": ("vit_srelpos_small_patch16_224", {"img_size": (64, 96), **THREE}, (64, 96)),
    "siglip": ("vit_base_patch16_siglip_224", {"img_size": (64, 96), **THREE}, (64, 96)),
    "pe": ("vit_pe_core_tiny_patch16_384", {"img_size": (64, 96), **THREE}, (64, 96)),
    "xcit": ("xcit_nano_12_p16_224", {"img_size": (64, 96), **THREE, "depth": 1}, (64, 96)),
}
"""Pooled keys and queries, whole images with a bias, pooling heads; the size of an image apart."""
OTHERS: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    # stages of 16 x 24, 8 x 12, 4 x 6 and 2 x 3 tokens; mask units of 8 x 8 and 4 x 4, then the whole image
    "hiera": (
        "hiera_tiny_224",
        {"img_size": (64, 96), "embed_dim": 12, "stages": (1, 2, 2, 1), "num_heads": 1},
        (64, 96),
    ),
    "cait": ("cait_xxs24_224", {"img_size": (64, 96), **THREE}, (64, 96)),
    "vit": ("vit_tiny_patch16_224", {"img_size": (64, 96), "reg_tokens": 2, **THREE}, (64, 96)),
    "dinov2": ("vit_small_patch14_reg4_dinov2", {"img_size": (56, 84), **THREE}, (56, 84)),
    "naflexvit": ("naflexvit_base_patch16_gap", THREE, (64, 96)),
    "vit-refining": ("vit_tiny_patch16_224", {"img_size": (64, 96), "global_pool": "prr", **THREE}, (64, 96)),
    "resnet_clip": ("resnet50_clip", {}, (64, 96)),
    "resnet_clip-rotary": ("resnet50_clip", {"head_type": "attn_rot"}, (64, 96)),
}


def sample(case: str) -> tuple[nn.Module, torch.Tensor]:
    """The model of any case and two images for it, always the same."""
    torch.manual_seed(0)
    if case in CASES:
        return build(case), image(case)
    name, small, size = {**POOLED, **OTHERS}[case]
    return randomize(timm.create_model(name, num_classes=5, **small)).eval(), torch.randn(2, 3, *size)


def build(case: str, **changes: Any) -> nn.Module:
    """The model of a case, randomised, in evaluation mode."""
    name, small = CASES[case]
    args = {"num_classes": 5, **small, **changes}
    if case.startswith("tiny_vit"):  # any size: it has no such argument
        args.pop("img_size")
    if case.startswith("mvitv2"):  # built square, and given the tables of the others
        size = args.pop("img_size")
        model: nn.Module = timm.create_model(name, img_size=max(size), **args)
        fit_tables(model, size)
        return randomize(model).eval()
    model = timm.create_model(name, **args)
    return randomize(model).eval()


def image(case: str, **changes: Any) -> torch.Tensor:
    """Two random images of the case's size."""
    size = {**CASES[case][1], **changes}["img_size"]
    height, width = (size, size) if isinstance(size, int) else size
    return torch.randn(2, 3, height, width)


def randomize(model: nn.Module) -> nn.Module:
    """Vectors and tables from N(0, 1/4), so that position matters; matrices scaled by their width."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            large = parameter.ndim < 2 or "table" in name or "rel_pos_" in name or "bias" in name
            spread = 0.5 if large else parameter[0].numel() ** -0.5
            if "attention_biases" in name or name.endswith(("kv.linear.weight", "q.ln.linear.weight")):
                spread *= 4  # many norms in between: position would hardly be felt
            parameter.copy_(torch.randn_like(parameter) * spread)
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model


def unrolled(model: Any) -> list[list[list[int]]]:
    """The patches under every token of the sequences of the four stages, by timm's own order and pooling."""
    rows, columns = model.unroll.size
    found = [[int(patch)] for patch in model.unroll(torch.arange(rows * columns).view(1, -1, 1)).flatten()]
    stages = [found]
    for _ in range(3):
        quarter = len(found) // 4
        found = [[*chain(*found[token::quarter])] for token in range(quarter)]
        stages.append(found)
    return stages


def in_order(model: Any, number: int, weights: torch.Tensor) -> torch.Tensor:
    """Weights of layer ``number`` of a Hiera, (B, H, W, Nq, Nk) or (B, H, Nq, Nk), with windows and tokens in the
    order of the image: (B W, H, Nq, Nk)."""
    pools = [block.attn.q_stride > 1 for block in model.blocks[: number + 1]]
    queries, keys = sum(pools), sum(pools[:-1])  # stages
    weights = weights if weights.ndim == 5 else weights[:, :, None]
    windows, stages = weights.shape[2], unrolled(model)

    def first(stage: int, window: int, slot: int) -> int:
        return min(stages[stage][slot * windows + window])

    whole = sorted(
        range(windows), key=lambda window: min(first(keys, window, slot) for slot in range(weights.shape[4]))
    )
    parts = []
    for window in whole:
        rows, columns = (
            torch.tensor(sorted(range(count), key=partial(first, stage, window)))
            for stage, count in ((queries, weights.shape[3]), (keys, weights.shape[4]))
        )
        parts.append(weights[:, :, window][:, :, rows][..., columns])
    return torch.stack(parts, dim=1).flatten(0, 1)
