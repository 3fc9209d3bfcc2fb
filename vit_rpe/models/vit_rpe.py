"""timm entry points: ``vit_rpe_{size}_patch{p}_{img}`` and ``vit_rpe_{size}_patch{p}_{encoding}_{img}``.

Registered from the two tables below, so that every name follows one rule. timm groups models by the last part of this
module's name: ``timm.list_models(module="vit_rpe")``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model

from vit_rpe.encodings import list_encodings, parse_specs
from vit_rpe.models.convert import checkpoint_filter
from vit_rpe.models.vit import VisionTransformer

SIZES: dict[str, dict[str, int]] = {
    "nano": {"embed_dim": 64, "depth": 6, "num_heads": 4},
    "tiny": {"embed_dim": 192, "depth": 12, "num_heads": 3},
    "small": {"embed_dim": 384, "depth": 12, "num_heads": 6},
    "base": {"embed_dim": 768, "depth": 12, "num_heads": 12},
    "large": {"embed_dim": 1024, "depth": 24, "num_heads": 16},
}

# (size, patch, image side), and whether a variant for every encoding is registered beside it
SHAPES: dict[tuple[str, int, int], bool] = {
    ("nano", 2, 8): True,
    ("nano", 4, 28): False,
    ("nano", 4, 32): False,
    ("tiny", 2, 32): False,
    ("tiny", 4, 32): True,
    ("small", 4, 32): False,
    ("tiny", 16, 224): True,
    ("small", 14, 224): False,
    ("small", 16, 224): True,
    ("small", 32, 224): False,
    ("base", 14, 224): False,
    ("base", 16, 224): True,
    ("base", 32, 224): False,
    ("large", 14, 224): False,
    ("large", 16, 224): False,
}


def _default_cfg(img_size: int) -> dict[str, Any]:
    return {
        "url": "",
        "num_classes": 1000,
        "input_size": (3, img_size, img_size),
        "pool_size": None,
        "crop_pct": 0.9 if img_size >= 224 else 1.0,
        "interpolation": "bicubic",
        "fixed_input_size": True,
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "first_conv": "patch_embed.proj",
        "classifier": "head",
        "license": "apache-2.0",
    }


def _create(variant: str, pretrained: bool, **kwargs: Any) -> VisionTransformer:
    out_indices = kwargs.pop("out_indices", 3)
    return build_model_with_cfg(
        VisionTransformer,
        variant,
        pretrained,
        pretrained_filter_fn=checkpoint_filter,
        feature_cfg={"out_indices": out_indices, "feature_cls": "getter"},
        **kwargs,
    )


def _entry_point(name: str, size: str, patch: int, encoding: str | None) -> Callable[..., VisionTransformer]:
    def create(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
        if encoding is not None:
            given = [spec["name"] for spec in parse_specs(kwargs.setdefault("rpe", encoding))] or ["none"]
            if given != [encoding]:
                raise ValueError(
                    f"{name} is the variant with rpe={encoding!r}, got rpe={kwargs['rpe']!r}: "
                    f"create {name.replace(f'_{encoding}', '')!r} for another encoding"
                )
        return _create(name, pretrained, **dict(patch_size=patch, **SIZES[size], **kwargs))

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"ViT {size}, patch {patch}, relative position {encoding or 'bias (or any rpe=...)'}."
    return create


def _shape_names() -> dict[str, tuple[str, int, int, str | None]]:
    names: dict[str, tuple[str, int, int, str | None]] = {}
    for (size, patch, img_size), with_variants in SHAPES.items():
        names[f"vit_rpe_{size}_patch{patch}_{img_size}"] = (size, patch, img_size, None)
        for encoding in list_encodings() if with_variants else []:
            names[f"vit_rpe_{size}_patch{patch}_{encoding}_{img_size}"] = (size, patch, img_size, encoding)
    return names


_NAMES = _shape_names()
default_cfgs = generate_default_cfgs({name: _default_cfg(shape[2]) for name, shape in _NAMES.items()})
__all__ = ["SHAPES", "SIZES"]
for _name, (_size, _patch, _img, _encoding) in _NAMES.items():
    globals()[_name] = register_model(_entry_point(_name, _size, _patch, _encoding))
