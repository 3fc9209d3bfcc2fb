"""A recording: the inputs of attention layers at their last call, and the maps recomputed from them.

Legend: B batch, H heads, Nq/Nk query/key tokens with prefix, W windows of one image, n axes.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import content_terms
from vit_rpe.checks import check_choice, check_index, check_within, warn_renamed
from vit_rpe.layers import AttentionLayer
from vit_rpe.models.families import Sight, family_of, whole_image
from vit_rpe.models.families.pooling import ClassAttention
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import PositionTerms
from vit_rpe.viz.recording.inputs import Device, mean_tokens, moved, on_device
from vit_rpe.viz.recording.maps import OffsetMean
from vit_rpe.viz.recording.on_image import map_of, place_map, pooled_map
from vit_rpe.viz.recording.parts import first_terms, parts_of, window_rows
from vit_rpe.viz.recording.query import Query, as_query, pick_query, query_token
from vit_rpe.viz.recording.through import Layer, Rollout, distance, roll


class Recording:
    """The inputs of every attention layer at its last call, and the maps recomputed from them.

    Layers are numbered in the order in which they first ran; negative numbers count from the end.
    """

    def __init__(self, device: Device, has_class_token: bool, approximate: str | None = None) -> None:
        self.device = device
        self.has_class_token = has_class_token
        self.calls: dict[str, tuple[nn.Module, dict[str, Any]]] = {}
        self.sights: dict[str, Sight | None] = {}
        self.outputs: dict[str, Tensor] = {}
        self.gradients: dict[str, Tensor] = {}
        self.approximate = approximate

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
        call = self._call(layer)
        return self._map(call._replace(position=content_terms(call.position)), layer, head, query)

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
        return self._placed((weights.detach() * slope).clamp_min(0), layer, head, query)

    @torch.no_grad()
    def some_terms(self, layer: int) -> PositionTerms:
        """What position adds in a layer, at least for the first row of its queries."""
        return first_terms(self._call(layer).position)

    @torch.no_grad()
    def by_offset(self, layer: int) -> Tensor:
        """:meth:`bias` by key minus query, (H, S_1, ..., S_n) as :func:`vit_rpe.viz.by_offset` gives it.

        Of windows, in their own grid; computed row by row, so that no map of all pairs is made.
        """
        q, k = self.grids(layer)
        call, sight = self._call(layer, mean="batch"), self.sight(layer)
        one = window_rows(call, len(sight.origins), slice(0, 1))
        mean = OffsetMean(q, k, call.q.shape[1], call.q.device)
        for part, _, _ in parts_of(one, replace(sight, origins=sight.origins[:1])):
            mean.add(part.position_logits()[0], part.q_grid or q)
        return mean.mean().to(call.q.dtype)

    @torch.no_grad()
    def distance(self, layer: int) -> Tensor:
        """Mean attention distance in patches of the image, (B, H), as :func:`vit_rpe.viz.mean_distance` defines it."""
        sight = self.sight(layer)
        return distance(self._call(layer), sight, self.image or sight.image)

    @torch.no_grad()
    def rollout(self, query: Query = "mean", *, residual: float = 0.5) -> Rollout:
        """Attention rollout of one query through all layers, as :func:`vit_rpe.viz.rollout` defines it.

        A vector is carried from the last layer to the first, across windows and stages; where convolutions or attention
        without a map lie between, the result says that it is approximate.

        Args:
            query: a patch, ``"mean"`` over all, or ``"class"``: the class token, or where the model pools its tokens
                by attention what it pools them to.
            residual: share of the identity.

        Raises:
            ValueError: no such query or share, or layers over tokens that differ.
        """
        check_within("residual", residual, 0, 1)
        query, numbers = as_query(query), range(len(self))
        if query != "class" and all(self.pools(layer) for layer in numbers):
            query = "class"
        last = next((layer for layer in reversed(numbers) if not self.pools(layer)), None)
        image = self.image or self.sight(0).image
        if last is not None and not (query == "class" and self.pools(-1)) and query != "mean":
            grid = replace(TokenGrid(image), num_prefix=self.sight(last).q_grid.num_prefix)
            query_token(query, grid, has_class_token=self.has_class_token)
        layers = (self._layer(layer) for layer in reversed(numbers))
        return Rollout(roll(layers, image, query, residual), self.approximate)

    def _layer(self, layer: int) -> Layer:
        module = self.calls[self._name(layer)][0]
        by_class = self._name(layer) in self.sights and isinstance(family_of(module), ClassAttention)
        call = self._call(layer)
        sight = self.sight(layer)
        if self.sights.get(self._name(layer)) is None and call.q.shape[2] != call.k.shape[2]:
            raise ValueError(
                f"rollout needs self-attention over the same tokens: layer {layer} has {call.q.shape[2]} queries and "
                f"{call.k.shape[2]} keys"
            )
        return Layer(call, sight, by_class)

    @torch.no_grad()
    def call(self, layer: int, *, mean: str | None = None) -> AttentionCall:
        """The attention call of a layer, recomputed and detached.

        Args:
            mean: ``"image"`` replaces every token by the mean over its image's tokens, ``"batch"`` by that over all
                recorded images (which then are one).

        Raises:
            ValueError: no such layer or mean, or a mean over tokens that a cache holds from earlier calls.
        """
        call = self._call(layer, mean=mean)
        return call._replace(position=call.terms)

    def _call(self, layer: int, *, mean: str | None = None) -> AttentionCall:
        """The same, with terms that need not be built for all queries at once."""
        name = self._name(layer)
        if mean is not None:
            check_choice("mean", mean, ("image", "batch"))
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
        call = self._call(layer)
        if call.q_grid is not None and call.k_grid is not None:
            return call.q_grid, call.k_grid
        length = call.q.shape[2]
        return TokenGrid((length,)), TokenGrid((call.k.shape[2],))

    def sight(self, layer: int) -> Sight:
        """What a layer sees of the image: as its family says, else its grids as the whole image."""
        sight = self.sights.get(self._name(layer))
        if sight is not None:
            return sight
        q, k = self.grids(layer)
        return replace(whole_image(q.size, q.num_prefix), q_grid=q, k_grid=k)

    def pools(self, layer: int) -> bool:
        """Whether the queries of a layer are no patches, but a class token alone or learned ones."""
        sight = self.sights.get(self._name(layer))
        return sight is not None and sight.pools

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
        query = None if query is None else as_query(query)
        sight, image = self._asked(layer, query)
        if sight is None or sight.pools:
            return self._placed(call.weights(), layer, head, query)
        assert query is not None
        weights = map_of(call, sight, image, query)
        return weights if head is None else weights[:, self.head(layer, head)]

    def _placed(self, weights: Tensor, layer: int, head: int | None, query: Query | None) -> Tensor:
        """The same from the weights of all pairs, (B W, H, Nq, Nk)."""
        query = None if query is None else as_query(query)
        sight, image = self._asked(layer, query)
        if sight is None or query is None:
            return self._select(weights, layer, head, query)
        weights = (pooled_map if sight.pools else place_map)(weights, sight, image, query)
        return weights if head is None else weights[:, self.head(layer, head)]

    def _asked(self, layer: int, query: Query | None) -> tuple[Sight | None, tuple[int, ...]]:
        """What a layer sees where one query's map lies on the image, else None; and the image.

        Raises:
            ValueError: a query that the layer does not have.
        """
        sight, image = self.sights.get(self._name(layer)), self.image
        if sight is None or image is None or query is None:
            return None, ()
        if sight.pools or query == "mean":
            return sight, image
        if isinstance(query, tuple):
            query_token(query, TokenGrid(image), has_class_token=False)  # refuses what is outside
            return sight, image
        if not sight.is_whole or (isinstance(query, int) and sight.q_grid.size != image):
            raise ValueError(
                f"query {query!r} is for layers in which every token sees the whole image: use a patch or 'mean'"
            )
        query_token(query, sight.q_grid, has_class_token=self.has_class_token)
        return sight, image

    @property
    def num_images(self) -> int:
        """Samples of the batch that ran last."""
        return self._call(0).q.shape[0] // len(self.sight(0).origins)

    @property
    def num_heads(self) -> int:
        """Heads of the first layer."""
        return self.heads(0)

    def heads(self, layer: int) -> int:
        """Heads of a layer."""
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
        return self.names[check_index("layer", layer, len(self), "the recording", from_end=True)]

    def head(self, layer: int, head: int) -> int:
        """The number of a head, checked.

        Raises:
            ValueError: the layer has no such head.
        """
        return check_index("head", head, self.heads(layer), "the layer")
