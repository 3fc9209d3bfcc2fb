"""timm entry points: ``vit_rpe_{size}_patch{p}_{img}`` and ``vit_rpe_{size}_patch{p}_{encoding}_{img}``.

Registered from the two tables below, so that every name follows one rule; beside them stand the public architectures of
timm (``exchange/public.py``), and ``vit_rpe_custom``, which is nothing but its arguments. A tag names trained weights,
such as those that come with the package (``shipped.py``): ``vit_rpe_nano_patch2_8.bias_digits``. timm groups models by
the last part of this module's name: ``timm.list_models(module="vit_rpe")``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from safetensors import SafetensorError
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model

from vit_rpe.checks import UnknownArgument, argument_error
from vit_rpe.encodings import list_encodings, parse_specs
from vit_rpe.models.exchange import Description, checkpoint_filter, public_description, public_name
from vit_rpe.models.exchange.from_timm import ANY_ARCHITECTURE
from vit_rpe.models.exchange.public import public_cfgs
from vit_rpe.models.shipped import tags_of
from vit_rpe.models.vision.vit import VisionTransformer

SIZES: dict[str, dict[str, int]] = {
    "nano": {"embed_dim": 64, "depth": 6, "num_heads": 4},
    "tiny": {"embed_dim": 192, "depth": 12, "num_heads": 3},
    "small": {"embed_dim": 384, "depth": 12, "num_heads": 6},
    "base": {"embed_dim": 768, "depth": 12, "num_heads": 12},
    "large": {"embed_dim": 1024, "depth": 24, "num_heads": 16},
}

SMALL_IMAGES = ((8, 64), (8, 96), (8, 128), (16, 128))
"""Patch and side of models for folders of images between CIFAR's and ImageNet's: 8 x 8 to 16 x 16 patches."""

# (size, patch, image side), and whether a variant for every encoding is registered beside it
SHAPES: dict[tuple[str, int, int], bool] = {
    ("nano", 2, 8): True,
    ("nano", 4, 28): False,
    ("nano", 4, 32): False,
    ("tiny", 2, 32): False,
    ("tiny", 4, 32): True,
    ("small", 4, 32): False,
    **{(size, patch, side): False for size in ("nano", "tiny", "small") for patch, side in SMALL_IMAGES},
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


def _create(variant: str, pretrained: bool, source: Description | None = None, **kwargs: Any) -> VisionTransformer:
    out_indices = kwargs.pop("out_indices", 3)
    try:
        return build_model_with_cfg(
            VisionTransformer,
            variant,
            pretrained,
            pretrained_filter_fn=partial(checkpoint_filter, source=source),
            feature_cfg={"out_indices": out_indices, "feature_cls": "getter"},
            **kwargs,
        )
    except (TypeError, UnknownArgument) as error:
        raise argument_error(variant, error, VisionTransformer) from error
    except SafetensorError as error:
        raise RuntimeError(f"cannot read the weights given for {variant}: {error}") from error
    except OSError as error:  # what the hub's client raises for a missing file and a missing connection alike
        if not pretrained:
            raise
        file = (kwargs.get("pretrained_cfg_overlay") or {}).get("file")
        if file is not None:
            raise RuntimeError(
                f"cannot read the weights given for {variant}: {str(error) or f'no file {file}'}"
            ) from error
        raise RuntimeError(
            f"cannot get the weights of {variant}: they lie on the hub and there is no copy in the local cache; check "
            f"the connection, or give a file with pretrained_cfg_overlay={{'file': PATH}} ({error})"
        ) from error


def _own(name: str, size: str, patch: int, encoding: str | None) -> Callable[..., VisionTransformer]:
    trained = tags_of(name)

    def create(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
        tag = kwargs.get("pretrained_cfg")
        if isinstance(tag, str) and tag in trained:
            kwargs = {**trained[tag].args, **kwargs}
        if encoding is not None:
            given = [spec["name"] for spec in parse_specs(kwargs.setdefault("rpe", encoding))] or ["none"]
            if given != [encoding]:
                raise ValueError(
                    f"{name} is the variant with rpe={encoding!r}, got rpe={kwargs['rpe']!r}: "
                    f"create {name.replace(f'_{encoding}', '')!r} for another encoding"
                )
        return _create(name, pretrained, **{"patch_size": patch, **SIZES[size], **kwargs})

    create.__doc__ = f"ViT {size}, patch {patch}, relative position {encoding or 'bias (or any rpe=...)'}."
    return create


def _public(name: str, of_timm: str) -> Callable[..., VisionTransformer]:
    def create(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
        source = public_description(of_timm)
        args = source.args_for(kwargs.get("rpe"))
        args = {key: value for key, value in args.items() if key not in ("in_chans", "num_classes")}
        if not args["dynamic_img_size"]:
            args.pop("img_size")  # a tag may have another one than its architecture; its configuration says so
        return _create(name, pretrained, source, **{**args, **kwargs})

    create.__doc__ = f"{of_timm} of timm, its arguments and its public files."
    return create


def _custom(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """A vision transformer that is nothing but its arguments; what :func:`vit_rpe.from_timm` builds from."""
    return _create(ANY_ARCHITECTURE, pretrained, **kwargs)


def _collect() -> tuple[dict[str, Callable[..., VisionTransformer]], dict[str, Any]]:
    """All entry points by name, and the configuration of every ``name.tag``."""
    functions: dict[str, Callable[..., VisionTransformer]] = {ANY_ARCHITECTURE: _custom}
    cfgs: dict[str, Any] = {ANY_ARCHITECTURE: _default_cfg(224)}
    for (size, patch, img_size), with_variants in SHAPES.items():
        for encoding in [None, *(list_encodings() if with_variants else [])]:
            infix = "" if encoding is None else f"_{encoding}"
            name = f"vit_rpe_{size}_patch{patch}{infix}_{img_size}"
            functions[name] = _own(name, size, patch, encoding)
            trained = tags_of(name)
            cfgs |= {one.name: {**_default_cfg(img_size), **one.cfg} for one in trained.values()}
            cfgs[f"{name}.*" if trained else name] = _default_cfg(img_size)  # *: the name alone stays the plain model
    for of_timm, tag, cfg in public_cfgs():
        name = public_name(of_timm)
        functions.setdefault(name, _public(name, of_timm))
        kept = {key: value for key, value in cfg.items() if key not in ("url", "architecture", "tag")}
        cfgs[f"{name}.{tag}" if tag else name] = {**kept, "custom_load": False}
    return functions, cfgs


_FUNCTIONS, _CFGS = _collect()
default_cfgs = generate_default_cfgs(_CFGS)
__all__ = ["SHAPES", "SIZES"]
for _name, _function in _FUNCTIONS.items():
    _function.__name__ = _function.__qualname__ = _name
    globals()[_name] = register_model(_function)
