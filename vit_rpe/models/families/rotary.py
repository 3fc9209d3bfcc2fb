"""Transformers with rotary position: EVA-02, RoPE-ViT, DINOv3, PE, LingBot, Sapiens2, Qwen3-VL's and DeepSeek's towers.

timm gives their layers the angles as the argument ``rope``. Pairs of channels are neighbours or lie half a head apart,
and the first half of the angles is that of rows or of columns; ours are half a head apart and go by axis.

Legend: B batch, H heads, G heads of keys and values, D head width, N tokens with prefix, P without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import AttentionRope, RotaryEmbeddingCat, RotaryEmbeddingDinoV3, RotaryEmbeddingMixed
from timm.models import deepseek_vit, eva, naflexvit, qwen3_vit
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import PlacedLayer, Sight
from vit_rpe.models.families._own import OwnPosition
from vit_rpe.models.families._qkv import project_together
from vit_rpe.models.families._sequence import WholeSequence, sequence_call
from vit_rpe.position.terms import NOTHING, PositionTerms


class Rotary(WholeSequence):
    """Queries and keys turned by angles; heads of keys and values may be fewer (grouped-query attention)."""

    takes_position = True
    layers = (eva.EvaAttention, AttentionRope)
    hosts = (eva.Eva, qwen3_vit.Qwen3VitEncoder, deepseek_vit.DeepseekVitEncoder, naflexvit.NaFlexVit)

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        model = self.host(around)
        rope = getattr(model, "rope", None)
        return {
            **super().facts(layer, around),
            "rope": rope if rope is None else rotary_spec(rope),
            "width_first": getattr(rope, "grid_indexing", "ij") == "xy",
        }

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition | None:
        spec = facts.get("rope")
        if isinstance(spec, ValueError):
            raise spec
        return None if spec is None else OwnPosition(spec, self.native(layer, facts))

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        rope = inputs.get("rope")
        if rope is None:
            return NOTHING
        return rotation_terms(rope, layer.num_prefix_tokens, rotate_half=layer.rotate_half)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        gate = None if layer.gate is None else layer.gate(x).sigmoid()
        q, k, v = _project(layer, x)
        width_first = isinstance(layer, PlacedLayer) and layer.place.facts["width_first"]
        q, k = (by_axis(part, layer.rotate_half, width_first) for part in (layer.q_norm(q), layer.k_norm(k)))
        groups = layer.num_heads // k.shape[1]
        if groups > 1:
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)

        def finish(attended: Tensor) -> Tensor:
            out = layer.norm(attended.transpose(1, 2).flatten(2))
            return layer.proj_drop(layer.proj(out if gate is None else out * gate))

        return sequence_call(layer, (q, k, v), finish, inputs, sight, position)


def rotation_terms(rope: Tensor, num_prefix: int, *, rotate_half: bool) -> PositionTerms:
    """timm's sines and cosines (..., P, 2 D) as rotations of queries and keys; prefix tokens stay as they are."""
    sin, cos = rope.chunk(2, dim=-1)  # (..., P, D) each
    half = slice(None, sin.shape[-1] // 2) if rotate_half else slice(None, None, 2)
    sin, cos = sin[..., half], cos[..., half]
    if cos.ndim == 4 and bool((cos == cos[:1]).all() and (sin == sin[:1]).all()):  # the same for all samples
        sin, cos = sin[0], cos[0]
    prefix = (0, 0, num_prefix, 0)
    rotation = F.pad(cos, prefix, value=1.0), F.pad(sin, prefix)
    return PositionTerms(rotate_q=rotation, rotate_k=rotation)


def rotary_spec(rope: nn.Module) -> dict[str, Any] | ValueError:
    """timm's rotary embedding as an encoding of ours, or why there is none."""
    name = type(rope).__name__
    if isinstance(rope, RotaryEmbeddingMixed):
        return ValueError("mixed rotary frequencies are parameters of the whole model here: use vit_rpe.from_timm")
    if isinstance(rope, RotaryEmbeddingCat):
        if rope.in_pixels:
            return ValueError("rotary frequencies in pixels have no counterpart here")
        spec: dict[str, Any] = {"name": "rope", "base": float(rope.temperature)}
        if rope.ref_feat_shape is not None:
            spec["reference"] = tuple(rope.ref_feat_shape)
        if rope.grid_offset:
            spec["origin"] = float(rope.grid_offset)
    elif isinstance(rope, RotaryEmbeddingDinoV3):
        if rope.temperature is None or rope.min_period is not None or rope.grid_offset:
            return ValueError("rotary periods given by their ends, or an offset, have no counterpart here")
        spec = {"name": "rope_normalized", "base": float(rope.temperature), "normalize": rope.normalize_coords}
        changes = {"shift": rope.shift_coords, "jitter": rope.jitter_coords, "rescale": rope.rescale_coords}
        return {**spec, **{key: value for key, value in changes.items() if value is not None}}
    else:
        return ValueError(f"a rotary embedding of type {name} has no counterpart here")
    if getattr(rope, "aug_active", False):
        return ValueError(f"random coordinates in training have no counterpart here ({name})")
    return spec


def by_axis(x: Tensor, rotate_half: bool, width_first: bool) -> Tensor:
    """Channels of (B, H, N, D) in our order: pairs half a head apart, those of rows first; products stay."""
    half = x.shape[-1] // 2
    if rotate_half and not width_first:
        return x
    pairs = x.unflatten(-1, (2, half)).mT if rotate_half else x.unflatten(-1, (half, 2))  # (B, H, N, D/2, 2)
    if width_first:
        pairs = torch.cat([pairs[..., half // 2 :, :], pairs[..., : half // 2, :]], dim=-2)
    return pairs.mT.flatten(-2)


def _project(layer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q (B, H, N, D), k and v (B, G, N, D)."""
    if layer.qkv is None:
        projected = (layer.q_proj(x), layer.k_proj(x), layer.v_proj(x))
    else:
        together: Any = project_together(layer, x) if hasattr(layer, "q_bias") else layer.qkv(x)
        projected = together.chunk(3, dim=-1)
    q, k, v = (part.unflatten(-1, (-1, layer.head_dim)).transpose(1, 2) for part in projected)
    return q, k, v
