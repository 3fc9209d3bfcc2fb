"""The image tower of Gemma 4: rotary position along columns and rows, each in half of the channels of a head.

Queries, keys and values are normalised, and logits are not scaled. Images may come cut into patches in any order; they
have a place only where the patches are those of one whole grid.

Legend: B batch, H heads, D head width, N tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from timm.models import gemma4_vit
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Sight
from vit_rpe.models.families._own import OwnPosition
from vit_rpe.models.families._patches import grid_of_coordinates
from vit_rpe.models.families._sequence import WholeSequence, sequence_call
from vit_rpe.models.families.rotary import rotation_terms


class Gemma4(WholeSequence):
    """timm gives the layers cosines and sines as arguments."""

    takes_position = True
    layers = (gemma4_vit.Gemma4Attention,)
    hosts = (gemma4_vit.Gemma4VitEncoder,)

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        model = self.host(around)
        if model is None:
            return {}
        files: Any = next((each for module in around if (each := getattr(module, "pretrained_cfg", None))), None)
        size = None if files is None else files["input_size"][1:]
        image = None if size is None else tuple(side // by for side, by in zip(size, model.patch_size, strict=True))
        return {"num_prefix": 0, "image": image, "base": float(model.rotary_emb.rope_theta)}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        return getattr(self.host(around), "patch_embed", None)

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...] | None:
        x, coordinates = args[0], args[1] if len(args) > 1 else None
        if isinstance(x, dict):
            x, coordinates = x["patches"], x.get("patch_coord", coordinates)
        if coordinates is not None:
            return grid_of_coordinates(coordinates)
        return tuple(side // by for side, by in zip(x.shape[-2:], watched.patch_size, strict=True))

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition:
        return OwnPosition({"name": "rope", "base": facts["base"]}, self.native(layer, facts))

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        sin, cos = (_rows_first(inputs[name])[:, None] for name in ("rope_sin", "rope_cos"))
        return rotation_terms(torch.cat([sin, cos], dim=-1), 0, rotate_half=True)

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        x = inputs["x"]
        projected = (layer.q_proj(x), layer.k_proj(x), layer.v_proj(x))
        q, k, v = (part.unflatten(-1, (-1, layer.head_dim)) for part in projected)
        parts = (_rows_first(layer.q_norm(q)), _rows_first(layer.k_norm(k)), layer.v_norm(v))
        q, k, v = (part.transpose(1, 2) for part in parts)
        if layer.num_kv_groups > 1:
            k, v = (part.repeat_interleave(layer.num_kv_groups, dim=1) for part in (k, v))

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.o_proj(attended.transpose(1, 2).flatten(2)))

        return sequence_call(layer, (q, k, v), finish, inputs, sight, position, scale=1.0)


def _rows_first(x: Tensor) -> Tensor:
    """Channels (..., D) in our order: pairs half a head apart, those of rows first."""
    axes = x.unflatten(-1, (2, 2, -1))  # (..., columns and rows, halves of a pair, D/4)
    return axes.flip(-3).transpose(-3, -2).flatten(-3)
