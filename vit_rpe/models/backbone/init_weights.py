"""First values of a model's weights, and which of them weight decay must leave alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from timm.models import named_apply
from timm.models.vision_transformer import get_init_weights_vit
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_rpe.checks import unknown_name
from vit_rpe.encodings import PositionEncoding, find_encodings
from vit_rpe.layers.conditional import ConditionalPosition

MODES = ("", "jax", "jax_nlhb", "moco", "reset")


def defer_linear_init(will_be: bool, *factories: object) -> AbstractContextManager[object]:
    """Within it, ``nn.Linear`` leaves its weights without values, for a model that draws them when it is complete.

    Saves a third of the time a model takes to build. Without effect unless ``will_be``, or where a caller's own class
    is among the ``factories`` of layers: :func:`init_layers` draws ``nn.Linear`` and no other matrix.
    """
    known = all(factory is None or isinstance(factory, str) for factory in factories)
    return _NoLinearInit() if will_be and known else nullcontext()


class _NoLinearInit(TorchFunctionMode):
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


def init_tokens(pos_embed: Tensor | None, *tokens: Tensor | None) -> None:
    """Draw what belongs to no layer: the absolute embedding with deviation 0.02, class token and registers near 0."""
    if pos_embed is not None:
        nn.init.trunc_normal_(pos_embed, std=0.02)
    for token in tokens:
        if token is not None:
            nn.init.normal_(token, std=1e-6)


def init_layers(model: nn.Module, mode: str = "", *, num_classes: int = 1, needs_reset: bool = True) -> None:
    """Draw the layers of a model as timm does.

    Args:
        mode: one of :data:`MODES`; those with ``nlhb`` start the classifier at ``-log(num_classes)``.
        needs_reset: also layers whose constructor has drawn them.

    Raises:
        ValueError: an unknown ``mode``.
    """
    if mode not in MODES:
        raise unknown_name("weight_init", mode, [*MODES, "skip"])
    head_bias = -math.log(num_classes) if "nlhb" in mode else 0.0
    named_apply(get_init_weights_vit(mode, head_bias, needs_reset=needs_reset), model)


def _positions(model: nn.Module) -> Iterator[tuple[str, PositionEncoding | ConditionalPosition]]:
    """Every single encoding and conditional position inside a model, with its path."""
    yield from find_encodings(model)
    for path, module in model.named_modules():
        if isinstance(module, ConditionalPosition):
            yield path, module


def init_encodings(model: nn.Module) -> None:
    """Draw every position encoding inside a model by its own rule, conditional positions too."""
    for _, position in _positions(model):
        position.reset_parameters()


def undecayed(model: nn.Module) -> set[str]:
    """Full names of the parameters that the positions inside ``model`` keep from weight decay."""
    return {f"{path}.{own}" for path, position in _positions(model) for own in position.no_weight_decay()}
