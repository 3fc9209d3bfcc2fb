"""A timm model, or one of timm's names, as one of ours: ``vit_rpe.from_timm``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import timm
from timm.models import adapt_input_conv, get_pretrained_cfg, split_model_name_tag
from torch import nn

from vit_rpe.checks import closest, unknown_name
from vit_rpe.encodings import Spec
from vit_rpe.models.backbone.loading import with_grid
from vit_rpe.models.exchange.complete import require_all
from vit_rpe.models.exchange.describe import describe
from vit_rpe.models.exchange.load import head_count
from vit_rpe.models.exchange.placing import place
from vit_rpe.models.exchange.public import PUBLIC, public_name
from vit_rpe.models.exchange.weights import rename
from vit_rpe.precision import placement_of

ANY_ARCHITECTURE = "vit_rpe_custom"
OF_THE_WEIGHTS = {
    *("embed_dim", "depth", "num_heads", "mlp_ratio", "mlp_layer", "class_token", "reg_tokens", "pos_embed"),
    *("no_embed_class", "pre_norm", "qkv_bias", "proj_bias", "qk_norm", "scale_attn_norm", "scale_mlp_norm"),
}
"""Arguments that the weights decide."""
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
    for key in OF_THE_WEIGHTS & kwargs.keys():
        if kwargs[key] != found.args[key]:
            raise ValueError(f"the weights have {key}={found.args[key]!r}, which cannot become {kwargs[key]!r}")
    args = {**found.args_for(rpe), **kwargs}
    for key, value in placement_of(model.patch_embed)._asdict().items():
        args.setdefault(key, value)
    for key in ("url", "hf_hub_id", "file", "tag", "custom_load"):
        cfg.pop(key, None)
    ours: Any = timm.create_model(host, pretrained_cfg={**cfg, "architecture": host}, **args)
    weights = rename(model.state_dict(), head_count(ours), found.layout)
    grid = tuple(model.patch_embed.grid_size)
    state = place(weights, ours, grid, trained_with=found.trained_with)
    if ours.in_chans != found.args["in_chans"]:
        state["patch_embed.proj.weight"] = adapt_input_conv(ours.in_chans, state["patch_embed.proj.weight"])
    if ours.num_classes != model.num_classes:
        state = {key: value for key, value in state.items() if not key.startswith("head.")}
        state.update({key: value for key, value in ours.state_dict().items() if key.startswith("head.")})
    require_all(state, ours)
    ours.load_state_dict(with_grid(state, grid))
    return ours.train(model.training)
