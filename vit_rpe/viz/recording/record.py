"""Watch the attention of a model: ``with record(model) as seen: model(x)``, then ``seen.attention(3)``.

While the model runs, only the *inputs* of its attention layers are kept, by forward pre-hooks; fused kernels stay on.
Maps are computed afterwards, one layer at a time, from the weights the model has then. A layer that runs twice keeps
its last input, so a second call of the model replaces the first.

Legend: B batch, H heads, Nq/Nk query/key tokens with prefix, C channels.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from vit_rpe.layers import AttentionLayer
from vit_rpe.models.families import (
    Place,
    PlacedLayer,
    family_of,
    is_described,
    place_layers,
    require_described,
)
from vit_rpe.position.devices import find_device
from vit_rpe.viz.recording.inputs import Device, arguments_of, detached
from vit_rpe.viz.recording.recording import Recording
from vit_rpe.viz.recording.through import moved_between


@contextmanager
def record(model: nn.Module, *, device: Device = None, keep_outputs: bool = False) -> Iterator[Recording]:
    """Record what the attention layers of ``model`` are given.

    What ``torch.compile`` made runs uncompiled inside the block: compiled code passes hooks by.

    Args:
        model: any model with attention layers of ours (:class:`vit_rpe.layers.AttentionLayer`) or of a known family
            (:mod:`vit_rpe.models.families`).
        device: where maps are computed; default: where the model is.
        keep_outputs: keep the layers' outputs with their graph too, for gradients with respect to the maps.

    Yields:
        The recording; it can be read after the block, when the hooks are gone.

    Raises:
        ValueError: no such device, or the model has no attention layer, or one that no family describes; the message
            names its class.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"record needs a model, an nn.Module, got {model!r}")
    device = None if device is None else find_device(device)
    layers = attention_layers(model)
    require_described(model)
    if not layers:
        raise ValueError(f"{type(model).__name__} has no attention layer that can be recorded")
    seen = Recording(device, getattr(model, "cls_token", None) is not None, moved_between(model, list(layers)))
    handles: list[RemovableHandle] = []
    try:
        told = {name: each for name, each in layers.items() if is_described(each) or isinstance(each, PlacedLayer)}
        places, watches = place_layers(model, told)
        seen.has_class_token |= any(place.facts.get("class_token", False) for place in places.values())
        handles += watches
        for name, module in layers.items():
            keep = _keep_input(seen, name, places.get(name))
            handles.append(module.register_forward_pre_hook(keep, with_kwargs=True))
            if keep_outputs:
                handles.append(module.register_forward_hook(_keep_output(seen, name)))
        with _uncompiled():
            yield seen
    finally:
        for handle in handles:
            handle.remove()


def _uncompiled() -> AbstractContextManager[Any]:
    if "torch._dynamo" not in sys.modules:  # then nothing is compiled, and the import would take seconds
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def attention_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Attention layers by module name: ours, and those of known families."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, AttentionLayer) or is_described(module)
    }


def _keep_input(seen: Recording, name: str, place: Place | None) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs = arguments_of(module, args, kwargs)
        if place is not None:
            seen.sights[name] = family_of(module).sight(module, place, inputs)
        # A copy: a model may add to its stream in place after the layer has read it.
        seen.calls[name] = (module, {key: detached(value, seen.device) for key, value in inputs.items()})

    return hook


def _keep_output(seen: Recording, name: str) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen.outputs[name] = output[0] if isinstance(output, tuple) else output

    return hook
