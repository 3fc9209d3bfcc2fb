"""Public architectures of timm that have an entry point here, each with its tags and their files on the hub.

``vit_relpos_*``, ``vit_srelpos_*``, ``beit*`` and ``deit*`` keep their name behind ``vit_rpe_``. ``vit_{size}_*``
becomes ``vit_rpe_timm_{size}_*``, because ``vit_rpe_{size}_*`` are our own architectures.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import timm
import torch
from timm.models import get_pretrained_cfg

from vit_rpe.models.exchange.describe import Description, describe

PUBLIC = (
    # plain, learned absolute position
    *(f"vit_{size}_patch16_{side}" for size in ("tiny", "small", "base", "large") for side in (224, 384)),
    *("vit_small_patch32_224", "vit_small_patch32_384", "vit_base_patch32_224", "vit_base_patch32_384"),
    *("vit_small_patch8_224", "vit_base_patch8_224", "vit_large_patch32_384", "vit_large_patch14_224"),
    *("deit_tiny_patch16_224", "deit_small_patch16_224", "deit_base_patch16_224", "deit_base_patch16_384"),
    *(f"deit3_{size}_patch16_{side}" for size in ("small", "base", "large") for side in (224, 384)),
    *("deit3_medium_patch16_224", "deit3_huge_patch14_224"),
    *(f"vit_{size}_patch14_dinov2" for size in ("small", "base", "large", "giant")),
    *(f"vit_{size}_patch14_reg4_dinov2" for size in ("small", "base", "large", "giant")),
    *("vit_base_patch32_clip_224", "vit_base_patch16_clip_224", "vit_base_patch16_clip_384"),
    *("vit_large_patch14_clip_224", "vit_large_patch14_clip_336", "vit_huge_patch14_clip_224"),
    # relative bias
    *("vit_relpos_small_patch16_224", "vit_relpos_medium_patch16_224", "vit_relpos_base_patch16_224"),
    *("vit_relpos_medium_patch16_cls_224", "vit_relpos_base_patch16_cls_224", "vit_relpos_base_patch16_clsgap_224"),
    *("vit_relpos_base_patch16_plus_240", "vit_srelpos_small_patch16_224", "vit_srelpos_medium_patch16_224"),
    *("beit_base_patch16_224", "beit_base_patch16_384"),
    *("beit_large_patch16_224", "beit_large_patch16_384", "beit_large_patch16_512"),
    *("beitv2_base_patch16_224", "beitv2_large_patch16_224"),
    # rotary
    *("vit_medium_patch16_rope_reg1_gap_256", "vit_mediumd_patch16_rope_reg1_gap_256"),
    *("vit_betwixt_patch16_rope_reg4_gap_256", "vit_base_patch16_rope_reg1_gap_256"),
    *(
        f"vit_{size}_patch16_{kind}_224"
        for kind in ("rope", "rope_ape", "rope_mixed", "rope_mixed_ape")
        for size in ("small", "base", "large")
    ),
    *("vit_small_patch16_dinov3", "vit_small_plus_patch16_dinov3", "vit_base_patch16_dinov3"),
    *("vit_large_patch16_dinov3", "vit_huge_plus_patch16_dinov3", "vit_7b_patch16_dinov3"),
    *("vit_small_patch16_dinov3_qkvb", "vit_small_plus_patch16_dinov3_qkvb", "vit_base_patch16_dinov3_qkvb"),
    *("vit_tiny_patch16_dinov3_qkvb", "vit_large_patch16_dinov3_qkvb", "vit_huge_plus_patch16_dinov3_qkvb"),
    *(f"eva02_{size}_patch14_{side}" for size in ("tiny", "small") for side in (224, 336)),
    *(f"eva02_{size}_patch14_{side}" for size in ("base", "large") for side in (224, 448)),
    *("eva02_base_patch16_clip_224", "eva02_large_patch14_clip_224", "eva02_large_patch14_clip_336"),
    *(f"vit_{size}_patch16_lingbot" for size in ("small", "base", "large", "giant")),
    *("vit_pe_lang_gigantic_patch14_448", "vit_pe_spatial_gigantic_patch14_448"),
)


def public_name(name: str) -> str:
    """Our entry point for one of timm's names (without tag)."""
    if name.startswith(("vit_relpos_", "vit_srelpos_")):
        return f"vit_rpe_{name.removeprefix('vit_')}"
    return f"vit_rpe_timm_{name.removeprefix('vit_')}" if name.startswith("vit_") else f"vit_rpe_{name}"


def available() -> list[str]:
    """The names of :data:`PUBLIC` that the installed timm has."""
    return [name for name in PUBLIC if timm.is_model(name)]


def public_cfgs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name in timm, tag and configuration of every file on the hub.

    An architecture without public weights has one entry, with an empty tag; the first of its tags is the default.
    """
    tagged: dict[str, list[str]] = {name: [] for name in available()}
    for full in timm.list_pretrained():
        name, _, tag = full.partition(".")
        if tag and name in tagged:
            tagged[name].append(tag)
    for name, tags in tagged.items():
        default = get_pretrained_cfg(name)
        assert default is not None
        tags.sort(key=lambda tag: tag != default.tag)
        found = ((tag, get_pretrained_cfg(f"{name}.{tag}")) for tag in tags)
        on_hub = [(tag, cfg) for tag, cfg in found if cfg is not None and cfg.hf_hub_id]
        for tag, cfg in on_hub or [("", default)]:
            yield name, tag, cfg.to_dict()


@cache
def public_description(name: str) -> Description:
    """The arguments and layout of one of timm's architectures, read from a model built without memory."""
    with torch.device("meta"):
        return describe(timm.create_model(name))
