"""Watch the attention of a model: ``with record(model) as seen: model(x)``, then ``seen.attention(3)``.

While the model runs, only the *inputs* of its attention layers are kept, by forward pre-hooks; fused kernels stay on.
Maps are computed afterwards, one layer at a time, from the weights the model has then. A layer that runs twice keeps
its last input, so a second call of the model replaces the first.

Legend: B batch, H heads, Nq/Nk query/key tokens with prefix, C channels.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vit_rpe.attention import AttentionCall
from vit_rpe.checks import warn_renamed
from vit_rpe.layers import AttentionLayer
from vit_rpe.models.families import (
    Place,
    PlacedLayer,
    Sight,
    family_of,
    is_described,
    place_layers,
    require_described,
)
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import PositionTerms
from vit_rpe.viz.recording.inputs import Device, arguments_of, detached, mean_tokens, moved, on_device
from vit_rpe.viz.recording.on_image import map_of, pooled_map
from vit_rpe.viz.recording.query import Query, pick_query, query_token


class Recording:
    """The inputs of every attention layer at its last call, and the maps recomputed from them.

    Layers are numbered in the order in which they first ran; negative numbers count from the end.
    """

    def __init__(self, device: Device, has_class_token: bool) -> None:
        self.device = device
        self.has_class_token = has_class_token
        self.calls: dict[str, tuple[nn.Module, dict[str, Any]]] = {}
        self.sights: dict[str, Sight | None] = {}
        self.outputs: dict[str, Tensor] = {}
        self.gradients: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return len(self.calls)

    @property
    def names(self) -> list[str]:
        """Module names of the layers, in order."""
        return list(self.calls)

    @torch.no_grad()
    def attention(self, layer: int, head: int | None = None, query: Query | None = None) -> Tensor:
        """The weights a layer used: after the softmax, before dropout; rows sum to 1, or 0 where nothing is visible.

        Args:
            layer: number of the layer.
            head: one head, or all.
            query: a token's number, a grid position such as ``(5, 9)``, ``"class"``, ``"mean"`` over grid tokens;
                None for all.

        Returns:
            (B, H, Nq, Nk) without H for one head and without Nq for one query; detached, on the recording's device.
            Of windows, of pooled tokens and in later stages: for one query, where that patch of the image looks among
            its patches (:mod:`vit_rpe.viz.recording.on_image`), on :meth:`map_grid`; without a query the maps of all
            windows as they are, (B W, H, Nq, Nk).

        Raises:
            ValueError: no such layer, head or query.
        """
        return self._map(self._call(layer), layer, head, query)

    @torch.no_grad()
    def content(self, layer: int, head: int | None = None, query: Query | None = None) -> Tensor:
        """The map with position removed: masks and the softmax scale stay. As :meth:`attention`."""
        call = self.call(layer)
        return self._map(call._replace(position=PositionTerms(scale=call.terms.scale)), layer, head, query)

    @torch.no_grad()
    def position(self, layer: int, head: int | None = None, query: Query | None = None) -> Tensor:
        """The map of position alone: every token carries the image's mean content. As :meth:`attention`."""
        return self._map(self._call(layer, mean="image"), layer, head, query)

    @torch.no_grad()
    def bias(self, layer: int, head: int | None = None) -> Tensor:
        """What position adds to the logits where every token carries the mean content of the recorded images.

        For a pure bias this is the bias, whatever the images.

        Returns:
            (H, Nq, Nk), or (Nq, Nk) for one head; -inf where a key is hidden.
        """
        logits = self.call(layer, mean="batch").position_logits()[0]
        return logits if head is None else logits[self.head(layer, head)]

    def gradient_weighted(self, layer: int, head: int | None = None, query: Query | None = None) -> Tensor:
        """The weights times the gradient of the class score with respect to them, where positive.

        Generic Attention-model Explainability, arXiv 2103.15679, eq. 5, before its mean over heads. Needs a recording
        made by :func:`vit_rpe.viz.record_class`. Arguments and shape as in :meth:`attention`.

        Raises:
            ValueError: no such layer, head or query, or a recording without gradients.
        """
        name = self._name(layer)
        if name not in self.gradients:
            raise ValueError("this recording has no gradients: make it with record_class(model, x, target)")
        call = self.call(layer)
        with torch.no_grad():
            weights = call.weights()
        with torch.enable_grad():
            output: Any = call.output(weights.requires_grad_())
            output = output[0] if isinstance(output, tuple) else output
            gradient = self.gradients[name].to(output.device, output.dtype)
            (slope,) = torch.autograd.grad(output, weights, gradient)
        return self._select((weights.detach() * slope).clamp_min(0), layer, head, query)

    @torch.no_grad()
    def call(self, layer: int, *, mean: str | None = None) -> AttentionCall:
        """The attention call of a layer, recomputed and detached.

        Args:
            mean: ``"image"`` replaces every token by the mean over its image's tokens, ``"batch"`` by that over all
                recorded images (which then are one).

        Raises:
            ValueError: no such layer, or a mean over tokens that a cache holds from earlier calls.
        """
        call = self._call(layer, mean=mean)
        return call._replace(position=call.terms)

    def _call(self, layer: int, *, mean: str | None = None) -> AttentionCall:
        """The same, with terms that need not be built for all queries at once."""
        name = self._name(layer)
        module, inputs = self.calls[name]
        if inputs.get("cache") is not None:
            if mean is not None and inputs["cache"].length > 0:
                raise ValueError("position alone needs all tokens in one call, not a decoding step with a cache")
            inputs = {**inputs, "cache": copy.copy(inputs["cache"])}  # it is extended by the call
        if mean is not None:
            family = family_of(module) if name in self.sights else None
            names = ("x", "context") if family is None else family.tokens
            tokens = [key for key in names if inputs.get(key) is not None]
            sight = self.sights.get(name)
            windows = 1 if sight is None or family is None or family.cuts_inside else len(sight.origins)
            channels = -1 if family is None else family.channels
            for number, key in enumerate(tokens):  # what comes beside the windows is whole images
                tensor = mean_tokens(inputs[key], mean, windows if number == 0 else 1, channels)
                inputs = {**inputs, key: tensor}
        if self.device is not None:
            module = on_device(module, self.device)
            inputs = {key: moved(value, self.device) for key, value in inputs.items()}
        if isinstance(module, AttentionLayer):
            call = module.attention_call(**inputs)
        else:
            family, sight = family_of(module), self.sights[name]
            call = family.call(module, inputs, sight, family.position(module, sight, inputs))
        return call

    def pieces(self, layer: int, *, mean: str | None = None) -> AttentionCall:
        """Deprecated: :meth:`call`."""
        warn_renamed("Recording.pieces", "Recording.call")
        return self.call(layer, mean=mean)

    def grids(self, layer: int) -> tuple[TokenGrid, TokenGrid]:
        """The query and key grid of a layer; a plain sequence where it is not known (after patch dropout)."""
        call = self.call(layer)
        if call.q_grid is not None and call.k_grid is not None:
            return call.q_grid, call.k_grid
        length = call.q.shape[2]
        return TokenGrid((length,)), TokenGrid((call.k.shape[2],))

    @property
    def image(self) -> tuple[int, ...] | None:
        """Patches of the image: the tokens of the first layer's stage. None where its layout is not described."""
        return next((sight.image for sight in self.sights.values() if sight is not None), None)

    def map_grid(self, layer: int) -> TokenGrid:
        """The grid on which the map of one query lies: the patches of the image, behind the keys' prefix tokens."""
        sight = self.sights.get(self._name(layer))
        if sight is None or self.image is None:
            return self.grids(layer)[1]
        return TokenGrid(self.image, num_prefix=sight.k_grid.num_prefix)

    def _map(self, call: AttentionCall, layer: int, head: int | None, query: Query | None) -> Tensor:
        """The weights of a call; of one query on the image where it is known what the layer sees."""
        sight, image = self.sights.get(self._name(layer)), self.image
        if sight is None or image is None or query is None:
            return self._select(call.weights(), layer, head, query)
        if sight.pools:
            weights = pooled_map(call, sight, image, query)
            return weights if head is None else weights[:, self.head(layer, head)]
        plain = sight.is_whole and sight.image == image and sight.q_grid == sight.k_grid and sight.q_grid.size == image
        if plain and not isinstance(query, tuple):
            return self._select(call.weights(), layer, head, query)
        asks_class = query == "class" and self.has_class_token and sight.is_whole and sight.q_grid.num_prefix > 0
        if isinstance(query, int) or (query == "class" and not asks_class):
            raise ValueError(
                f"query {query!r} is for layers in which every token sees the whole image: use a patch or 'mean'"
            )
        if isinstance(query, tuple):
            query_token(query, TokenGrid(image), has_class_token=False)  # refuses what is outside
        weights = map_of(call, sight, image, query)
        return weights if head is None else weights[:, self.head(layer, head)]

    @property
    def num_heads(self) -> int:
        """Heads of the first layer."""
        return self._num_heads(0)

    def _num_heads(self, layer: int) -> int:
        name = self._name(layer)
        module: Any = self.calls[name][0]
        return family_of(module).num_heads(module) if name in self.sights else int(module.num_heads)

    def _select(self, weights: Tensor, layer: int, head: int | None, query: Query | None) -> Tensor:
        if query is not None:
            weights = pick_query(weights, query, self.grids(layer)[0], has_class_token=self.has_class_token)
        if head is not None:
            weights = weights[:, self.head(layer, head)]
        # A row must not keep the whole map alive.
        return weights if query is None and head is None else weights.clone()

    def _name(self, layer: int) -> str:
        if not -len(self) <= layer < len(self):
            raise ValueError(
                f"layer {layer} does not exist: the recording has {len(self)} layers, 0 to {len(self) - 1}"
            )
        return self.names[layer]

    def head(self, layer: int, head: int) -> int:
        """The number of a head, checked.

        Raises:
            ValueError: the layer has no such head.
        """
        num_heads = self._num_heads(layer)
        if not 0 <= head < num_heads:
            raise ValueError(f"head {head} does not exist: the layer has {num_heads} heads, 0 to {num_heads - 1}")
        return head


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
        ValueError: the model has no attention layer, or one that no family describes; the message names its class.
    """
    layers = attention_layers(model)
    require_described(model)
    if not layers:
        raise ValueError(f"{type(model).__name__} has no attention layer that can be recorded")
    seen = Recording(device, getattr(model, "cls_token", None) is not None)
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
