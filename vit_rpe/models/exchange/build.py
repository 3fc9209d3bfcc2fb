"""A model of ours from what was found in somebody else's: its arguments and its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import timm
from timm.models import adapt_input_conv
from torch import nn

from vit_rpe.encodings import Spec
from vit_rpe.models.backbone.loading import Grid, with_grid
from vit_rpe.models.exchange.complete import require_all
from vit_rpe.models.exchange.describe import Description
from vit_rpe.models.exchange.placing import place
from vit_rpe.models.exchange.weights import Weights

OF_THE_WEIGHTS = {
    *("embed_dim", "depth", "num_heads", "mlp_ratio", "mlp_layer", "class_token", "reg_tokens", "pos_embed"),
    *("no_embed_class", "pre_norm", "qkv_bias", "proj_bias", "qk_norm", "scale_attn_norm", "scale_mlp_norm"),
}
"""Arguments that the weights decide."""


def build(
    host: str,
    found: Description,
    weights: Weights,
    grid: Grid,
    rpe: Spec | Sequence[Spec] | None,
    kwargs: Mapping[str, Any],
    *,
    cfg: Mapping[str, Any],
) -> nn.Module:
    """Create the architecture ``host`` with the arguments found, and fill it.

    Args:
        weights: under our names.
        grid: the token grid they were trained on.
        rpe: None keeps the encoding found; another one replaces it.
        kwargs: arguments to change, such as ``img_size``, ``in_chans`` or ``num_classes``.
        cfg: timm's configuration for data and files.

    Raises:
        ValueError: an argument that the weights decide, weights that do not fill the model or that no part of it takes.
    """
    for key in sorted(OF_THE_WEIGHTS & kwargs.keys()):
        if kwargs[key] != found.args[key]:
            raise ValueError(f"the weights have {key}={found.args[key]!r}, which cannot become {kwargs[key]!r}")
    args = {**found.args_for(rpe), **kwargs}
    ours: Any = timm.create_model(host, pretrained_cfg={**cfg, "architecture": host}, **args)
    state = place(weights, ours, grid, trained_with=found.trained_with)
    if ours.in_chans != found.args["in_chans"]:
        state["patch_embed.proj.weight"] = adapt_input_conv(ours.in_chans, state["patch_embed.proj.weight"])
    own = ours.state_dict()
    if ours.num_classes != found.args["num_classes"]:
        state = {key: value for key, value in state.items() if not key.startswith("head.")}
        state.update({key: value for key, value in own.items() if key.startswith("head.")})
    require_all(state, ours)
    strange = [key for key in state if key not in own and "rpe" not in key.split(".")]
    if strange:
        raise ValueError(f"the weights have {len(strange)} parameters that the model has not, {strange[0]!r} first")
    ours.load_state_dict(with_grid(state, grid))
    return ours
