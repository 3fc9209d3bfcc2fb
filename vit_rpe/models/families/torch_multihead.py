"""torch's ``MultiheadAttention``, in torchvision's ViT and in the pooling head of Hugging Face's SigLIP.

torch takes the weight of ``out_proj`` and leaves out what is put around it. Queries that are no tokens of the image
pool it. In models that are not known here it has no place on an image.

Legend: B batch, H heads, D head width, Nq and Nk queries and keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import VisionTransformer

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Place, Sight, whole_image
from vit_rpe.models.families._patches import embeddings_of, patch_convolution, patches_of, prefix_facts
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import PositionTerms


class TorchMultihead(Family):
    """Self-attention where query and key are one tensor."""

    layers = (nn.MultiheadAttention,)
    tokens = ("query", "key", "value")

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        if not layer.batch_first or layer.bias_k is not None or layer.add_zero_attn:
            raise ValueError("MultiheadAttention with the batch second, or with keys of its own, is not described")
        return prefix_facts(_host(around))

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return patch_convolution(_host(around))

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return patches_of(watched, args[0])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        if place.image is None:
            return None
        whole = whole_image(place.image, place.facts["num_prefix"])
        if inputs["key"].shape[1] != whole.k_grid.num_tokens:
            return None
        if inputs["query"] is inputs["key"]:
            return whole
        queries = TokenGrid((inputs["query"].shape[1],))
        return Sight(place.image, queries, whole.k_grid, whole.origins, pools=True)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        biases = (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
        together = layer.in_proj_weight is not None
        matrices = (
            layer.in_proj_weight.chunk(3)
            if together
            else (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
        )
        parts = (F.linear(inputs[name], *pair) for name, *pair in zip(self.tokens, matrices, biases, strict=True))
        q, k, v = (part.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2) for part in parts)

        def finish(attended: Tensor) -> Tensor:
            return F.linear(attended.transpose(1, 2).flatten(2), layer.out_proj.weight, layer.out_proj.bias)

        visible, bias = _masks(inputs, layer.num_heads)
        return AttentionCall(
            q,
            k,
            v,
            position if bias is None else PositionTerms(bias=bias),
            visible,
            layer.head_dim**-0.5,
            finish,
            dropout_p=layer.dropout if layer.training else 0.0,
            q_grid=None if sight is None else sight.q_grid,
            k_grid=None if sight is None else sight.k_grid,
        )


def _host(around: Sequence[nn.Module]) -> Any:
    """What holds the patch embedding and the prefix tokens; None where that is not known."""
    vision = next((module for module in around if isinstance(module, VisionTransformer)), None)
    return embeddings_of(around) if vision is None else vision


def _masks(inputs: Mapping[str, Any], num_heads: int) -> tuple[Tensor | None, Tensor | None]:
    """torch's masks, True = hidden or a float bias, as ``visible`` and a bias."""
    visible: Tensor | None = None
    bias: Tensor | None = None
    mask, padding = inputs.get("attn_mask"), inputs.get("key_padding_mask")
    if mask is not None:
        mask = mask.unflatten(0, (-1, num_heads)) if mask.ndim == 3 else mask[None, None]
        hidden = mask if not mask.is_floating_point() else mask == float("-inf")
        bias = mask.masked_fill(hidden, 0.0) if mask.is_floating_point() else None
        visible = ~hidden
    if padding is not None:
        hidden = padding if not padding.is_floating_point() else padding == float("-inf")
        seen = ~hidden[:, None, None]
        visible = seen if visible is None else visible & seen
    return visible, bias
