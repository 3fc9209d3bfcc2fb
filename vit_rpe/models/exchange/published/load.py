"""Published files by the names of their tensors: ``vit_rpe.from_published``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import nn

from vit_rpe.encodings import Spec
from vit_rpe.models.exchange.build import build
from vit_rpe.models.exchange.files import read_file
from vit_rpe.models.exchange.from_timm import ANY_ARCHITECTURE
from vit_rpe.models.exchange.published import irpe_deit, lookhere, rope_swin, vit5
from vit_rpe.models.exchange.weights import unwrap

Builder = Callable[[Mapping[str, Any], Spec | Sequence[Spec] | None, Mapping[str, Any]], nn.Module]


def _plain(
    method: ModuleType, content: Mapping[str, Any], rpe: Spec | Sequence[Spec] | None, kwargs: Mapping[str, Any]
) -> nn.Module:
    found = method.read(content, rpe, kwargs)
    cfg = {
        "input_size": (found.description.args["in_chans"], *found.description.args["img_size"]),
        "num_classes": found.description.args["num_classes"],
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "interpolation": "bicubic",
        "first_conv": "patch_embed.proj",
        "classifier": "head",
    }
    return build(ANY_ARCHITECTURE, found.description, found.weights, found.grid, rpe, kwargs, cfg=cfg).eval()


FORMATS: dict[str, tuple[ModuleType, Builder]] = {
    **{method.NAME: (method, partial(_plain, method)) for method in (vit5, lookhere, irpe_deit)},
    rope_swin.NAME: (rope_swin, rope_swin.build),
}
"""What is known by its names, by method: the module that knows them, and what builds the model."""


def from_published(
    weights: str | Path | Mapping[str, Any], rpe: Spec | Sequence[Spec] | None = None, **kwargs: Any
) -> nn.Module:
    """A model with the weights that authors of a method published for a model of their own.

    Known are ViT-5, LookHere, iRPE-DeiT (all a :class:`vit_rpe.VisionTransformer` here) and RoPE-Swin (timm's Swin with
    our encoding in its windows). Which one it is and nearly all arguments are read off names and shapes.

    Args:
        weights: the file, ``.pth`` or ``.safetensors``, or what was read from it.
        rpe: None keeps the position of the file. Another one replaces it and starts at zero where it can; ``"irpe"``
            with ``method`` and ``ratio`` says how the tables of an iRPE file are to be read.
        kwargs: arguments to change, such as ``img_size``, ``num_classes`` or ``drop_path_rate``; ``num_heads`` where a
            file does not tell it (LookHere: 12).

    Returns:
        The model, in evaluation mode.

    Raises:
        ValueError: no such file, names of no known method, a part that ours does not have, or an argument that the
            weights decide; the message says which.
    """
    content = read_file(weights) if isinstance(weights, (str, Path)) else weights
    inside = content.get("weights", content)
    names = unwrap(inside if isinstance(inside, Mapping) else content)
    for method, make in FORMATS.values():
        if any(map(method.MARK.match, names)):
            return make(content, rpe, kwargs)
    raise ValueError(
        f"the names of these weights ({', '.join(list(names)[:3])} ...) are those of none of {', '.join(FORMATS)}: "
        "timm's models come in through vit_rpe.from_timm"
    )
