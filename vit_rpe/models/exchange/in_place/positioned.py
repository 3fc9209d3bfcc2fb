"""Somebody else's attention with an encoding of ours in it.

Legend: B batch, W windows of one image, H heads, N tokens with prefix, C channels.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position, terms_of
from vit_rpe.encodings import PositionEncoding
from vit_rpe.layers.options import describe_position
from vit_rpe.models.families import Place, PlacedLayer, Sight, family_of
from vit_rpe.precision import is_computed

CALLED_BESIDE = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks"),
)
"""What torch calls beside the forward of a module; the same objects, so that handles still remove their hook."""
torch.fx.wrap("compute_positioned")  # sizes and positions are no graph of tensors: any FX tracer takes it as one step


def compute_positioned(layer: PositionedAttention, *args: Any, **kwargs: Any) -> Tensor:
    """The output of a layer."""
    return layer.run(*args, **kwargs)


class PositionedAttention(PlacedLayer):
    """Somebody else's attention with position terms in it: its layers and numbers under their names.

    While positions are frozen ``masked_bias`` is the bias with the shift mask, (W, H or 1, N, N).

    Args:
        attention: whose layers are taken over.
        position: the encoding, found at ``rpe``.
        place: where the layer is in its model; knows the image in hand.
        attn_impl: ``"auto"`` or an attention kernel by name.
        keeps: the encoding says what the attention's own position said, so that files with its weights fit.
    """

    masked_bias: Tensor | None

    def __init__(
        self, attention: nn.Module, position: PositionEncoding, place: Place, attn_impl: str, *, keeps: bool = False
    ) -> None:
        super().__init__()
        family = family_of(attention)
        vars(self).update({name: value for name, value in vars(attention).items() if not name.startswith("_")})
        self._modules.update(attention._modules)
        self._parameters.update(attention._parameters)
        self._buffers.update(attention._buffers)
        for kind in (self._modules, self._parameters, self._buffers):
            for name in family.position_names:
                kind.pop(name, None)
        for name in CALLED_BESIDE:
            vars(self)[name] = vars(attention)[name]
        self._non_persistent_buffers_set = attention._non_persistent_buffers_set & self._buffers.keys()
        vars(self).update(family.remains(attention))
        vars(self).pop("fused_attn", None)
        self.family = family
        self.keeps = keeps
        self.argument_names = tuple(inspect.signature(attention.forward).parameters)
        self.place = place
        self.attn_impl = attn_impl
        self.rpe = position
        self.register_buffer("masked_bias", None, persistent=False)
        self.training = attention.training
        self.register_load_state_dict_pre_hook(_translate_weights)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Arguments and result are those of the attention that was here."""
        return compute_positioned(self, *args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Tensor:
        """What :meth:`forward` is to an FX tracer a single step of."""
        inputs, sight, position = self._described(args, kwargs)
        mask = self.family.mask_argument
        if self.masked_bias is not None and mask is not None and inputs.get(mask) is not None:
            rows = inputs[self.argument_names[0]].shape[0]
            bias = self.masked_bias.expand(rows // len(self.masked_bias), -1, -1, -1, -1).flatten(0, 1)
            inputs, position = {**inputs, mask: None}, terms_of(position)._replace(bias=bias)
        return self.family.run(self, inputs, sight, position, self.attn_impl)

    def attention_call(self, *args: Any, **kwargs: Any) -> AttentionCall:
        """What :meth:`forward` applies, as one call.

        Raises:
            ValueError: tokens that are not those of a whole image.
        """
        return self.family.call(self, *self._described(args, kwargs))

    def _described(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], Sight | None, Position]:
        """The inputs by name, what they see of the image, and their position."""
        inputs = self.arguments(args, kwargs)
        tokens = inputs[self.argument_names[0]]
        grids = self.family.grids(self, self.place, inputs)
        if grids is None:
            raise ValueError(
                f"{tuple(tokens.shape)} tokens are not those of the image in hand, {self.place.image}: "
                "the encoding cannot know where they lie"
            )
        content = tokens.movedim(self.family.channels, -1).flatten(1, -2)
        position = describe_position(self.rpe, *grids, tokens.device, x=content)
        return inputs, self.family.sight(self, self.place, inputs), position

    def set_window_size(self, window_size: tuple[int, int]) -> None:
        """What timm's blocks tell their attention; the encoding follows in :meth:`resize`."""
        self.window_size = tuple(window_size)

    def set_resolution(self, resolution: int) -> None:
        """The same under the name that EfficientViT has for it."""
        self.resolution = resolution

    def resize(self, tied: dict[int, nn.Parameter]) -> None:
        """Fit the encoding to the size that the family now reads off the model; for ``tied`` see
        :meth:`PositionEncoding.resized`."""
        grid = self.family.native(self, self.place.facts)
        if grid != self.rpe.grid:
            self.rpe = self.rpe.resized(grid, tied)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What ``forward`` is given, under the names of the attention that was here."""
        return {**dict(zip(self.argument_names, args, strict=False)), **kwargs}


def require_own_forward(layer: nn.Module) -> None:
    """Raise ValueError where an attention computes something else than its class says, which would be lost."""
    if "forward" in vars(layer) or is_computed(layer):
        what = (
            "its forward is replaced" if "forward" in vars(layer) else "a parameter of its own is computed from others"
        )
        raise ValueError(
            f"an encoding cannot be put into this {type(layer).__name__}: {what}; take that back first "
            "(torch.nn.utils.prune.remove, parametrize.remove_parametrizations), and do it again afterwards"
        )


def positioned_layers(model: nn.Module) -> dict[str, PositionedAttention]:
    """The attentions of other people with an encoding of ours in a model, by their paths."""
    return {path: module for path, module in model.named_modules() if isinstance(module, PositionedAttention)}


class Undecayed:
    """A model's ``no_weight_decay``, and the names of the encodings in it, as they are when it is asked."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.own = getattr(model, "no_weight_decay", None)

    def __call__(self) -> set[str]:
        names = set(self.own()) if callable(self.own) else set()
        for path, layer in positioned_layers(self.model).items():
            names |= {f"{path}.rpe.{name}" for name in layer.rpe.no_weight_decay()}
        return names


def _translate_weights(
    module: PositionedAttention, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
) -> None:
    """Hook of ``load_state_dict``: the position weights of a file of the family become those of ``rpe``."""
    names = module.family.position_names
    own = [key for key in state_dict if key.startswith(prefix) and key[len(prefix) :].split(".")[0] in names]
    weights = {key.removeprefix(prefix): state_dict.pop(key) for key in own}
    translated = module.family.translate(module, weights) if weights else {}
    if module.keeps:
        state_dict.update({f"{prefix}rpe.{name}": value for name, value in translated.items()})
    elif translated:
        warnings.warn(
            f"the position weights of {prefix.rstrip('.')} in the file are left out: {module.rpe.name!r} is in their "
            "place",
            stacklevel=2,
        )
