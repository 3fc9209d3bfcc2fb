"""Drawing a model's weights, and which of them weight decay must leave alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from timm.models import named_apply
from timm.models.vision_transformer import get_init_weights_vit
from torch import nn

from vit_rpe.encodings import PositionEncoding
from vit_rpe.suggest import unknown_name

if TYPE_CHECKING:
    from vit_rpe.models.vit import VisionTransformer


MODES = ("", "jax", "jax_nlhb", "moco", "reset")


def draw_weights(model: VisionTransformer, mode: str, *, needs_reset: bool) -> None:
    """timm's initialisation by ``mode``; encodings by their own rules.

    Raises:
        ValueError: an unknown ``mode``.
    """
    if mode not in MODES:
        raise unknown_name("weight_init", mode, [*MODES, "skip"])
    if model.pos_embed is not None:
        nn.init.trunc_normal_(model.pos_embed, std=0.02)
    for token in (model.cls_token, model.reg_token):
        if token is not None:
            nn.init.normal_(token, std=1e-6)
    head_bias = -math.log(model.num_classes) if "nlhb" in mode else 0.0
    named_apply(get_init_weights_vit(mode, head_bias, needs_reset=needs_reset), model)
    for module in model.modules():
        if isinstance(module, PositionEncoding):
            module.reset_parameters()


def undecayed(model: nn.Module) -> set[str]:
    """Full names of the parameters that the encodings inside ``model`` keep from weight decay."""
    return {
        f"{path}.{own}"
        for path, module in model.named_modules()
        if isinstance(module, PositionEncoding)
        for own in module.no_weight_decay()
    }
