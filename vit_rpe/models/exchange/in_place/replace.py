"""Position of ours in the attention of other people's models, which stay the objects they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from vit_rpe.attention import check_mixing
from vit_rpe.encodings import PositionEncoding, Spec, check_resizable, create_encoding, parse_specs
from vit_rpe.layers.options import check_attention
from vit_rpe.models.exchange.in_place.positioned import (
    PositionedAttention,
    Undecayed,
    positioned_layers,
    require_own_forward,
)
from vit_rpe.models.exchange.in_place.retrofit import add_rpe
from vit_rpe.models.exchange.parts import name_of, require_foreign
from vit_rpe.models.exchange.placing import start_at_zero
from vit_rpe.models.families import Place, around, family_of, is_described, place_layers, require_described
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.precision import placement_of

KEEP = "keep"


def replace_attention(
    model: nn.Module, rpe: Spec | Sequence[Spec] = KEEP, *, attn_impl: str = "auto", trained: bool = True
) -> nn.Module:
    """Give every attention of a model an encoding of ours, in place.

    Projections, norms, pooling and everything around stay what they are, under their names, so that public files load.
    The encoding is found at ``<attention>.rpe`` and follows ``set_input_size`` of the model.

    Args:
        model: a model of a described family (:mod:`vit_rpe.models.families`): Swin, Swin V2, Segment Anything,
            MaxViT, CoAtNet and others of timm; a plain ``VisionTransformer`` goes to :func:`add_rpe`.
        rpe: ``"keep"`` says the model's own position in our encodings, with its weights. Another spec takes its place;
            encodings that only add to the logits start at zero.
        attn_impl: ``"auto"`` or an attention kernel by name.
        trained: the model's weights are worth something; else another encoding starts as it is drawn, not at zero.

    Returns:
        The same object.

    Raises:
        ValueError: an attention that no family describes, a model without position to keep, an unknown encoding or
            kernel; the model is then as it was.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"replace_attention is for models, got {model!r}")
    require_foreign(model)
    keeps = isinstance(rpe, str) and rpe == KEEP
    if isinstance(model, VisionTransformer):
        if keeps:
            raise ValueError(f"{name_of(model)} has no relative position to keep: name an encoding")
        return add_rpe(model, rpe, attn_impl=attn_impl)
    specs = [] if keeps else parse_specs(rpe)
    described = _everywhere(model)
    layers = {path: module for path, module in described.items() if family_of(module).takes_position}
    if described and not layers:
        kinds = ", ".join(sorted({f"{type(each).__module__}.{type(each).__name__}" for each in described.values()}))
        raise ValueError(
            f"{name_of(model)} has attention that can be recorded only: {kinds}; some such models keep their position "
            "by vit_rpe.from_timm"
        )
    require_described(model)
    if not layers:
        raise ValueError(f"{name_of(model)} has no attention that could be replaced")
    for layer in layers.values():
        require_own_forward(layer)
    places, watches = place_layers(model, layers)
    if not any(family_of(layer).needs_image for layer in layers.values()):
        for watch in watches:
            watch.remove()
    made: dict[str, PositionEncoding] = {}
    shared: dict[Any, PositionEncoding] = {}
    for index, (path, layer) in enumerate(layers.items()):
        context = {"depth_index": index, "depth": len(layers)}
        position = _kept(layer, places[path]) if keeps else _new(layer, places[path], specs, context)
        made[path] = shared.setdefault((_identity(layer, keeps), position.grid), position)
    if keeps and all(position.name == "none" for position in made.values()):
        raise ValueError(f"{name_of(model)} has no relative position to keep: name an encoding")
    if not keeps and trained:
        start_at_zero(part for position in made.values() for part in position.parts())
    for path, layer in layers.items():
        position = made[path]
        impl = check_attention(attn_impl, position, position.grid, logit_clip=None, device=placement_of(layer).device)
        if family_of(layer).mixes_heads:
            check_mixing(impl)
        new = PositionedAttention(layer, position, places[path], impl, keeps=keeps)
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)
    _teach(model)
    return model


def _everywhere(model: nn.Module) -> dict[str, nn.Module]:
    """The described attentions at every place where they stand, also where one stands at several."""
    found: dict[tuple[nn.Module, str], tuple[str, nn.Module]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if path and is_described(module):
            holder, _, name = path.rpartition(".")
            found.setdefault((model.get_submodule(holder), name), (path, module))
    return dict(found.values())


def _identity(layer: nn.Module, keeps: bool) -> tuple[int, ...]:
    """What layers have in common that share their position: the parameters of it, or that they are one layer."""
    names = family_of(layer).position_names if keeps else ()
    own = [id(each) for name, each in layer.named_parameters() if name.split(".")[0] in names]
    return tuple(own) or (id(layer),)


def _kept(layer: Any, place: Place) -> PositionEncoding:
    family = family_of(layer)
    with torch.enable_grad():  # what is frozen stays so
        own = family.own(layer, place.facts)
    if own is None:
        return _new(layer, place, [], {})
    widths = family.num_heads(layer), family.head_width(layer)
    return own.encoding(*widths, placement_of(layer), training=layer.training)


def _new(layer: Any, place: Place, specs: Sequence[Spec], context: Mapping[str, int]) -> PositionEncoding:
    family = family_of(layer)
    device, dtype = placement_of(layer)
    made = create_encoding(
        list(specs),
        family.num_heads(layer),
        family.head_width(layer),
        family.native(layer, place.facts),
        device=device,
        dtype=dtype,
        **context,
    ).train(layer.training)
    for part in made.parts():
        if part.card.content and not family.reads_content:
            raise ValueError(
                f"{part.name!r} reads what queries and keys are made from, and in {type(layer).__name__} that is not "
                "its input: they are pooled, of another width, or come from elsewhere"
            )
    widths = family.head_width(layer), family.value_width(layer)
    if widths[0] != widths[1]:
        _require_no_values(made, *widths)
    return made


@torch.no_grad()
def _require_no_values(position: PositionEncoding, width: int, value_width: int) -> None:
    """Raise ValueError where an encoding adds vectors to values of another width."""
    tiny = TokenGrid((1,) * position.grid.ndim)
    for part in position.parts():
        if "on_value" in part.card.adds and part(tiny, tiny).on_value:
            raise ValueError(
                f"{part.name!r} adds vectors of width {width} to values, which have width {value_width} here: turn its "
                "part for values off"
            )


def _teach(model: Any) -> None:
    """Make ``set_input_size`` and ``no_weight_decay`` know of the encodings."""
    vars(model).update(no_weight_decay=Undecayed(model), set_input_size=Resize(model))


class Resize:
    """A model's ``set_input_size``, and the encodings' after it; ValueError where the model has none."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.own = getattr(model, "set_input_size", None)  # of its class, or of what it is around

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        check_resizable(self.model)
        embed = getattr(getattr(self.model, "patch_embed", None), "set_input_size", None)
        if self.own is not None:
            self.own(*args, **kwargs)
        elif embed is not None:
            embed(*args, **kwargs)
        else:
            raise ValueError(f"{name_of(self.model)} has no set_input_size: create it at another size")
        tied: dict[int, nn.Parameter] = {}
        for path, layer in positioned_layers(self.model).items():
            layer.place.facts = layer.family.facts(layer, around(self.model, path))
            layer.resize(tied)
