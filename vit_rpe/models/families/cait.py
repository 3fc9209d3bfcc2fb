"""CaiT's layers between patches: heads talk to each other before and after the softmax.

Going deeper with Image Transformers, arXiv 2103.17239; Talking-Heads Attention, arXiv 2003.02436. The maps are those of
the softmax, whose logits are mixed already; what the values meet is mixed once more and no longer sums to one.

Legend: B batch, H heads, D head width, N patches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timm.models import cait
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall, MixedByLayer
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.models.families._interface import Family, Sight
from vit_rpe.models.families._sequence import WholeSequence, sequence_call


class TalkingHeads(WholeSequence):
    """Patches alone, (B, N, C): the class token comes later, in layers of its own."""

    layers = (cait.TalkingHeadAttn,)
    hosts = (cait.Cait,)
    native = Family.native

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        return {**super().facts(layer, around), "num_prefix": 0}

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        qkv = layer.qkv(inputs["x"]).unflatten(-1, (3, layer.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)

        def finish(attended: Tensor) -> Tensor:
            return layer.proj_drop(layer.proj(attended.transpose(1, 2).flatten(2)))

        call = sequence_call(layer, (q, k, v), finish, {}, sight, position)
        before, after = (MixedByLayer(mix, heads_last=True) for mix in (layer.proj_l, layer.proj_w))
        return call._replace(mix_logits=before, mix_weights=after)
