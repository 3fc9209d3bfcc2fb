"""A timm model, or one of timm's names, as one of ours: ``vit_rpe.from_timm``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import timm
from timm.models import get_pretrained_cfg, split_model_name_tag
from torch import nn

from vit_rpe.checks import closest, unknown_name
from vit_rpe.encodings import Spec
from vit_rpe.models.exchange.build import build
from vit_rpe.models.exchange.describe import describe
from vit_rpe.models.exchange.public import PUBLIC, public_name
from vit_rpe.models.exchange.weights import rename
from vit_rpe.precision import placement_of

ANY_ARCHITECTURE = "vit_rpe_custom"
ELSEWHERE = ("hf-hub:", "hf_hub:", "local-dir:")
"""How timm's names of models begin that it does not have itself."""


def from_timm(
    model: nn.Module | str,
    rpe: Spec | Sequence[Spec] | None = None,
    *,
    pretrained: bool = True,
    **kwargs: Any,
) -> nn.Module:
    """A model of ours with the function and the weights of timm's.

    Args:
        model: a timm model, or the name of one with or without tag (``"vit_small_patch16_224.augreg_in1k"``), or where
            one lies (``"hf-hub:USER/NAME"``, ``"local-dir:FOLDER"``).
        rpe: None keeps the encoding the model has. Another one replaces it; encodings that only add to the logits
            start at zero, so that beside no other change the function is the same at first; others warn.
        pretrained: load the public weights of a name; a model brings its own weights.
        kwargs: further arguments of :class:`vit_rpe.VisionTransformer`, such as ``img_size``, ``in_chans`` or
            ``rpe_shared``.

    Returns:
        A :class:`vit_rpe.VisionTransformer`; in training or evaluation mode as the model was.

    Raises:
        ValueError: an unknown name or tag, or a model with a part that ours does not have, or an argument that the
            weights decide or do not have the parameters for; the message says which.
    """
    if isinstance(model, str) and model.startswith(ELSEWHERE):
        model = timm.create_model(model, pretrained=pretrained)
    if isinstance(model, str):
        name, tag = split_model_name_tag(model)
        if not timm.is_model(name):
            hint = closest(name, timm.list_models("*vit*") + timm.list_models("*beit*") + timm.list_models("deit*"))
            raise ValueError(f"timm has no model named {name!r}{hint}")
        try:
            get_pretrained_cfg(model)
        except RuntimeError as error:
            tags = [full.partition(".")[2] for full in timm.list_models(f"{name}.*", pretrained=True)]
            raise unknown_name(f"tag of {name}", tag, tags) from error
        if name in PUBLIC:
            full = f"{public_name(name)}.{tag}" if tag else public_name(name)
            return timm.create_model(full, pretrained=pretrained, rpe=rpe, **kwargs)
        describe(timm.create_model(name, device="meta"))  # refuse before anything is downloaded
        model = timm.create_model(model, pretrained=pretrained)
    return _convert(model, rpe, kwargs)


def _convert(model: Any, rpe: Spec | Sequence[Spec] | None, kwargs: dict[str, Any]) -> nn.Module:
    found = describe(model)
    cfg = {**getattr(model, "pretrained_cfg", {})}
    name = cfg.get("architecture") or ""
    host = public_name(name) if name in PUBLIC else ANY_ARCHITECTURE
    kwargs = {**placement_of(model.patch_embed)._asdict(), **kwargs}
    for key in ("url", "hf_hub_id", "file", "tag", "custom_load"):
        cfg.pop(key, None)
    weights = rename(model.state_dict(), found.args["num_heads"], found.layout)
    ours = build(host, found, weights, tuple(model.patch_embed.grid_size), rpe, kwargs, cfg=cfg)
    return ours.train(model.training)
