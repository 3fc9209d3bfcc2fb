"""timm's windowed models under names of ours, with any encoding in their attention: ``vit_rpe_swin_tiny_...``.

They are timm's models with :func:`vit_rpe.replace_attention` done: ``rpe="keep"``, the default, is their own position,
and the tags are timm's public files. timm groups models by the module that registers them: this one is
``timm.list_models(module="vit_rpe_windowed")``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import timm
from timm.models import generate_default_cfgs, get_pretrained_cfg, model_entrypoint, register_model
from torch import nn

from vit_rpe.models.exchange.in_place import replace_attention

MODULES = (
    "swin_transformer",
    "swin_transformer_v2",
    "swin_transformer_v2_cr",
    "vision_transformer_sam",
    "maxxvit",
    "mvitv2",
    "gcvit",
)
"""The files of timm whose models have such a name."""
NANO = {
    "img_size": 32,
    "patch_size": 2,
    "window_size": 4,
    "embed_dim": 40,
    "depths": (2, 4),
    "num_heads": (2, 4),
}
"""Swin for images of 32 pixels: stages of 16 x 16 and 8 x 8 tokens, 0.37 million parameters."""


def _public(name: str, of_timm: str, own: dict[str, Any]) -> Callable[..., nn.Module]:
    def create(pretrained: bool = False, rpe: Any = "keep", attn_impl: str = "auto", **kwargs: Any) -> nn.Module:
        build = model_entrypoint(of_timm)
        if own and kwargs.get("pretrained_cfg") is None:
            kwargs["pretrained_cfg"] = _CFGS[name]
        model: Any = build(pretrained=pretrained, **{**own, **kwargs})
        model = replace_attention(model, rpe, attn_impl=attn_impl, trained=pretrained)
        model.pretrained_cfg = {**model.pretrained_cfg, "architecture": name}
        model.default_cfg = model.pretrained_cfg
        return model

    create.__doc__ = f"{of_timm} of timm with its own position (``rpe='keep'``) or any encoding of ours."
    return create


def _collect() -> tuple[dict[str, Callable[..., nn.Module]], dict[str, Any]]:
    """All entry points by name, and the configuration of every ``name.tag``."""
    nano = "vit_rpe_swin_nano_patch2_window4_32"
    of_nano = "swin_tiny_patch4_window7_224"
    functions = {nano: _public(nano, of_nano, NANO)}
    base = get_pretrained_cfg(of_nano)
    assert base is not None
    unweighted = {key: value for key, value in base.to_dict().items() if key not in OF_A_FILE}
    cfgs: dict[str, Any] = {nano: {**unweighted, "input_size": (3, 32, 32), "pool_size": (8, 8), "crop_pct": 1.0}}
    tags_of: dict[str, list[str]] = defaultdict(list)
    for full in timm.list_pretrained():
        architecture, _, tag = full.partition(".")
        tags_of[architecture].append(tag)
    for module in MODULES:
        for of_timm in timm.list_models(module=module):
            name = f"vit_rpe_{of_timm}"
            functions[name] = _public(name, of_timm, {})
            default = get_pretrained_cfg(of_timm)
            assert default is not None
            for tag in sorted(tags_of[of_timm], key=lambda tag: tag != default.tag) or [""]:
                cfg = get_pretrained_cfg(f"{of_timm}.{tag}" if tag else of_timm)
                assert cfg is not None
                kept = {key: value for key, value in cfg.to_dict().items() if key not in ("architecture", "tag")}
                cfgs[f"{name}.{tag}" if tag else name] = kept
    return functions, cfgs


OF_A_FILE = ("url", "file", "state_dict", "hf_hub_id", "hf_hub_filename", "source", "architecture", "tag")
"""What a configuration says of weights."""
_FUNCTIONS, _CFGS = _collect()
default_cfgs = generate_default_cfgs(_CFGS)
__all__ = ["MODULES", "NANO"]
for _name, _function in _FUNCTIONS.items():
    _function.__name__ = _function.__qualname__ = _name
    globals()[_name] = register_model(_function)
