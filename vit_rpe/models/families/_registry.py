"""Which family an attention layer belongs to: a question of its class, never of a shape."""

from __future__ import annotations

import warnings

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations as kind_of

from vit_rpe.layers import AttentionLayer
from vit_rpe.models.families._interface import Family, PlacedLayer
from vit_rpe.models.families._kinds import WITHOUT_MAP, attention_of, name_of_kind
from vit_rpe.models.families.cait import TalkingHeads
from vit_rpe.models.families.efficientformer import (
    EfficientFormer,
    EfficientFormerV2,
    EfficientFormerV2Downsample,
)
from vit_rpe.models.families.efficientvit import EfficientViT
from vit_rpe.models.families.gcvit import GCViT
from vit_rpe.models.families.gemma4 import Gemma4
from vit_rpe.models.families.hiera import Hiera
from vit_rpe.models.families.hugging_face_sam import HuggingFaceSam, HuggingFaceVitDet
from vit_rpe.models.families.hugging_face_swin import HuggingFaceSwin, HuggingFaceSwinV2
from vit_rpe.models.families.hugging_face_vit import HuggingFaceBeit, HuggingFaceDinoV3, HuggingFaceViT
from vit_rpe.models.families.levit import LeViT, LeViTDownsample, TinyViT
from vit_rpe.models.families.maxvit import CoAtNet, MaxViT
from vit_rpe.models.families.mvitv2 import MViTv2
from vit_rpe.models.families.plain_vit import PlainViT
from vit_rpe.models.families.pooling import ClassAttention, LatentPool, RefiningPool
from vit_rpe.models.families.pooling_maps import EmbeddedPool, RotaryPool
from vit_rpe.models.families.rotary import Rotary
from vit_rpe.models.families.sam import SegmentAnything
from vit_rpe.models.families.sam2_hiera import Sam2Hiera
from vit_rpe.models.families.swin import Swin, SwinV2, SwinV2Cr
from vit_rpe.models.families.tables import Beit, RelativeViT
from vit_rpe.models.families.torch_multihead import TorchMultihead
from vit_rpe.models.families.torchvision_maxvit import TorchvisionMaxViT
from vit_rpe.models.families.torchvision_swin import TorchvisionSwin, TorchvisionSwinV2
from vit_rpe.models.families.twins import TwinsPooled, TwinsWindows

_FAMILIES: dict[type[nn.Module] | str, Family] = {}
"""By class, or by the name of a class whose package need not be installed."""


def register(family: Family) -> None:
    """Make a family known.

    Raises:
        ValueError: one of its classes is described already.
    """
    for kind in family.layers:
        if kind in _FAMILIES:
            name = kind if isinstance(kind, str) else name_of_kind(kind)
            raise ValueError(f"{name} is described by {type(_FAMILIES[kind]).__name__} already")
    _FAMILIES.update(dict.fromkeys(family.layers, family))


def described() -> tuple[Family, ...]:
    """All families, in the order in which they were registered."""
    return tuple(dict.fromkeys(_FAMILIES.values()))


def is_described(layer: nn.Module) -> bool:
    """Whether a module is an attention layer of a known family."""
    return kind_of(layer) in _FAMILIES or _name(layer) in _FAMILIES


def family_of(layer: nn.Module) -> Family:
    """The family of an attention layer.

    Raises:
        ValueError: a class that no family describes.
    """
    if isinstance(layer, PlacedLayer):
        return layer.family
    if not is_described(layer):
        raise _undescribed(layer)
    kind = kind_of(layer)
    return _FAMILIES[kind if kind in _FAMILIES else _name(layer)]


def require_described(model: nn.Module) -> None:
    """Raise ValueError, naming the class, where a model has an attention that no family describes.

    Attention without a map over tokens beside attention that has one (XCiT) is left out, with a warning.
    """
    known = [module for module in model.modules() if is_described(module) or isinstance(module, AttentionLayer)]
    unknown = [module for module in attention_of(model) if module not in known]
    blind = [module for module in unknown if without_map(module)]
    if blind and len(blind) == len(unknown) and known:
        warnings.warn(f"left out of the recording: {_undescribed(blind[0])}", stacklevel=4)
        return
    for module in (*blind, *unknown):
        raise _undescribed(module)


def without_map(layer: nn.Module) -> bool:
    """Whether a module is attention that says nothing about which token looks at which."""
    return _name(layer) in WITHOUT_MAP


def _name(layer: nn.Module) -> str:
    return name_of_kind(kind_of(layer))


def _undescribed(layer: nn.Module) -> ValueError:
    name = _name(layer)
    if name in WITHOUT_MAP:
        return ValueError(f"{name} has no map over tokens: {WITHOUT_MAP[name]}")
    return ValueError(
        f"no family describes attention of type {name}: describe it by a subclass of vit_rpe.models.families.Family "
        "and vit_rpe.models.families.register, as docs/pictures.md shows beside the list of those that are described"
    )


FAMILIES = (
    *(PlainViT(), Rotary(), Gemma4(), Swin(), SwinV2(), SwinV2Cr(), SegmentAnything(), MaxViT(), CoAtNet()),
    *(TinyViT(), LeViT(), LeViTDownsample(), EfficientViT()),
    *(EfficientFormer(), EfficientFormerV2(), EfficientFormerV2Downsample()),
    *(MViTv2(), GCViT(), Hiera(), TalkingHeads()),
    *(HuggingFaceViT(), HuggingFaceBeit(), HuggingFaceDinoV3(), HuggingFaceSwin(), HuggingFaceSwinV2()),
    *(HuggingFaceSam(), HuggingFaceVitDet()),
    *(Beit(), RelativeViT(), ClassAttention(), LatentPool(), RefiningPool(), EmbeddedPool(), RotaryPool()),
    *(TwinsWindows(), TwinsPooled(), Sam2Hiera()),
    *(TorchMultihead(), TorchvisionSwin(), TorchvisionSwinV2(), TorchvisionMaxViT()),
)
for _family in FAMILIES:
    register(_family)
