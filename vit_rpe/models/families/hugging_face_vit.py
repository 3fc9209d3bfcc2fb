"""Towers of Hugging Face's ``transformers`` over all tokens of the image: ViT, DeiT, BEiT, DINOv2 and v3, SigLIP, CLIP.

The classes differ by names. BEiT's table over offsets reaches a layer as its ``attention_mask``, DINOv3's angles as its
``position_embeddings``; the others know position from their embedding only. Attention of a tower that reads text has no
image.

Legend: B batch, H heads, D head width, N tokens with prefix, P without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Sight
from vit_rpe.models.families._patches import embeddings_of, patch_convolution, patches_of, prefix_facts
from vit_rpe.models.families._sequence import WholeSequence, sequence_call
from vit_rpe.position.terms import NOTHING, PositionTerms

CLASSES = (
    "vit.modeling_vit.ViTAttention",
    "deit.modeling_deit.DeiTAttention",
    "dinov2.modeling_dinov2.Dinov2Attention",
    "dinov2_with_registers.modeling_dinov2_with_registers.Dinov2WithRegistersAttention",
    "siglip.modeling_siglip.SiglipAttention",
    "clip.modeling_clip.CLIPAttention",
)


class HuggingFaceViT(WholeSequence):
    """No position of its own."""

    layers = tuple(f"transformers.models.{name}" for name in CLASSES)
    tokens = ("hidden_states",)
    native = Family.native

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        return prefix_facts(embeddings_of(around))

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return patch_convolution(embeddings_of(around))

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return patches_of(watched, args[0])

    def num_heads(self, layer: Any) -> int:
        return int(getattr(layer, "num_attention_heads", None) or layer.num_heads)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs[self.tokens[0]]
        parts = (layer.q_proj(x), layer.k_proj(x), layer.v_proj(x))
        q, k, v = (part.unflatten(-1, (-1, layer.head_dim)).transpose(1, 2) for part in parts)
        last = getattr(layer, "o_proj", None) or layer.out_proj

        def finish(attended: Tensor) -> Tensor:
            out: Tensor = last(attended.transpose(1, 2).flatten(2))
            return out

        causal = inputs.get("kwargs", {}).get("is_causal", False)
        masks = {"attn_mask": self.mask(inputs), "is_causal": causal and inputs.get("attention_mask") is None}
        dropout_p = getattr(layer, "dropout", None)
        return sequence_call(
            layer,
            (q, k, v),
            finish,
            masks,
            sight,
            position,
            scale=layer.head_dim**-0.5,
            dropout_p=layer.attention_dropout if dropout_p is None else dropout_p,
        )

    def mask(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """What hides keys; None hides nothing. The lowest finite number stands for minus infinity."""
        mask = inputs.get("attention_mask")
        if mask is None or not mask.is_floating_point():
            return mask
        lowest = mask.new_tensor(float("-inf"))
        return mask.where(mask > mask.new_full((), -1e30 if mask.dtype.itemsize > 2 else -6e4), lowest)


class HuggingFaceBeit(HuggingFaceViT):
    """The model makes the bias of a table over offsets, and gives it to the layers as their mask."""

    layers = ("transformers.models.beit.modeling_beit.BeitAttention",)

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        bias = inputs.get("attention_mask")
        return NOTHING if bias is None else PositionTerms(bias=bias)

    def mask(self, inputs: Mapping[str, Any]) -> Tensor | None:
        return None


class HuggingFaceDinoV3(HuggingFaceViT):
    """Pairs of channels half a head apart turn by normalised angles."""

    layers = ("transformers.models.dinov3_vit.modeling_dinov3_vit.DINOv3ViTAttention",)

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        cos, sin = inputs["position_embeddings"]  # (P, D) each, the second half of D as the first
        prefix = (0, 0, inputs[self.tokens[0]].shape[1] - cos.shape[0], 0)
        half = cos.shape[-1] // 2
        rotation = F.pad(cos[..., :half], prefix, value=1.0), F.pad(sin[..., :half], prefix)
        return PositionTerms(rotate_q=rotation, rotate_k=rotation)
