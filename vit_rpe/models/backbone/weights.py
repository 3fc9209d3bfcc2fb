"""Drawing a model's weights, and which of them weight decay must leave alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from timm.models import named_apply
from timm.models.vision_transformer import get_init_weights_vit
from torch import nn
from torch.overrides import TorchFunctionMode

from vit_rpe.checks import unknown_name
from vit_rpe.encodings import find_encodings

if TYPE_CHECKING:
    from vit_rpe.models.vision.vit import VisionTransformer


MODES = ("", "jax", "jax_nlhb", "moco", "reset")


def drawn_later(will_be: bool, *factories: object) -> AbstractContextManager[object]:
    """Within it, ``nn.Linear`` leaves its weights undrawn, for a model that draws them when it is complete.

    Saves a third of the time a model takes to build. Without effect unless ``will_be``, or where a caller's own class
    is among the ``factories`` of layers: :func:`draw_weights` draws ``nn.Linear`` and encodings, and no other matrix.
    """
    known = all(factory is None or isinstance(factory, str) for factory in factories)
    return _Undrawn() if will_be and known else nullcontext()


class _Undrawn(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = kwargs or {}
        if func in (nn.init.kaiming_uniform_, nn.init.uniform_):
            tensor = args[0] if args else options["tensor"]
            if tensor.ndim <= 2:
                return tensor
        return func(*args, **options)


def draw_tokens(model: VisionTransformer) -> None:
    """The model's own parameters, which belong to no layer: absolute embedding, class token, registers."""
    if model.pos_embed is not None:
        nn.init.trunc_normal_(model.pos_embed, std=0.02)
    for token in (model.cls_token, model.reg_token):
        if token is not None:
            nn.init.normal_(token, std=1e-6)


def draw_weights(model: VisionTransformer, mode: str, *, needs_reset: bool) -> None:
    """timm's initialisation by ``mode``; encodings by their own rules.

    Raises:
        ValueError: an unknown ``mode``.
    """
    if mode not in MODES:
        raise unknown_name("weight_init", mode, [*MODES, "skip"])
    draw_tokens(model)
    head_bias = -math.log(model.num_classes) if "nlhb" in mode else 0.0
    named_apply(get_init_weights_vit(mode, head_bias, needs_reset=needs_reset), model)
    for _, encoding in find_encodings(model):
        encoding.reset_parameters()


def undecayed(model: nn.Module) -> set[str]:
    """Full names of the parameters that the encodings inside ``model`` keep from weight decay."""
    return {f"{path}.{own}" for path, encoding in find_encodings(model) for own in encoding.no_weight_decay()}
