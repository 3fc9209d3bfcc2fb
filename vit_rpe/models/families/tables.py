"""BEiT and the relative position ViTs of timm: a bias from a table or a network, whole images with a class token.

BEiT is described for looking at it; :func:`vit_rpe.from_timm` takes such models over.

Legend: B batch, H heads, D head width, N tokens with prefix.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from timm.models import beit, vision_transformer_relpos
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Sight
from vit_rpe.models.families._qkv import project_together
from vit_rpe.models.families._rel_pos import RelPosModule
from vit_rpe.models.families._sequence import WholeSequence, sequence_call
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import NOTHING, PositionTerms


class BiasOfWholeImage(WholeSequence):
    """A layer's own bias, and one that the model shares."""

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        found = [each for each in (self.bias(layer), inputs.get(self.shared)) if each is not None]
        if not found:
            return NOTHING
        bias = torch.stack(torch.broadcast_tensors(*found)).sum(dim=0)
        return PositionTerms(bias=bias if bias.ndim == 4 else bias[None])

    shared: str

    @abstractmethod
    def bias(self, layer: Any) -> Tensor | None:
        """(1, H, N, N), or None."""

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        qkv = self.project(layer, inputs["x"]).unflatten(-1, (3, layer.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.normed(layer, q, k)

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.proj(attended.transpose(1, 2).flatten(2)))

        return sequence_call(layer, (q, k, v), finish, {}, sight, position)

    def project(self, layer: Any, x: Tensor) -> Tensor:
        """Queries, keys and values in one, (B, N, 3 H D)."""
        return layer.qkv(x)

    def normed(self, layer: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys as they meet."""
        return q, k


class Beit(BiasOfWholeImage):
    """A table over offsets with three entries for the class token."""

    layers = (beit.Attention,)
    hosts = (beit.Beit,)
    shared = "shared_rel_pos_bias"
    native = Family.native

    def bias(self, layer: Any) -> Tensor | None:
        return None if layer.relative_position_bias_table is None else layer._get_rel_pos_bias()

    def project(self, layer: Any, x: Tensor) -> Tensor:
        return project_together(layer, x)


class RelativeViT(RelPosModule, BiasOfWholeImage):
    """A table or a network, with or without class token; norms before or after (``rpn``)."""

    layers = (vision_transformer_relpos.RelPosAttention,)
    hosts = (vision_transformer_relpos.VisionTransformerRelPos,)
    shared = "shared_rel_pos"

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        is_shared = getattr(self.host(around), "shared_rel_pos", None) is not None
        return {**super().facts(layer, around), "shared": is_shared}

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        if facts["shared"]:
            raise ValueError("the layers of this model share one relative position: use vit_rpe.from_timm")
        return super().native(layer, facts)

    def bias(self, layer: Any) -> Tensor | None:
        return None if layer.rel_pos is None else layer.rel_pos.get_bias()

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        return super().position(layer, sight, inputs if layer.rel_pos is None else {})

    def normed(self, layer: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return layer.q_norm(q), layer.k_norm(k)
