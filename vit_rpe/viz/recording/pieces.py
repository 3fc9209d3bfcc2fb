"""What one attention layer did with one input, recomputed from that input.

Nothing here changes the layer: the fused path ran as it always does, and the map is computed afterwards by the
definition, :func:`vit_rpe.attention_weights`.

Legend: B batch, H heads, D head width, Dv value width, C channels, Nq/Nk query/key tokens with prefix.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from vit_rpe.attention import attention_weights, position_logits, rotate, value_output
from vit_rpe.layers import RelativeMultiheadAttention
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.masks import as_batch_head, geometry_mask, intersect, padding
from vit_rpe.position.terms import PositionTerms, dense_index


class Pieces(NamedTuple):
    """The ingredients of one attention call.

    Attributes:
        q: (B, H, Nq, D), k: (B, H, Nk, D), v: (B, H, Nk, Dv); q and k as they meet the terms, before rotation.
        terms: what position adds, masks included.
        masks: what hides keys whatever the encoding (causal order, window, padding, the caller's mask), bool,
            broadcasting to (B, H, Nq, Nk); None hides nothing.
        scale: softmax scale without ``terms.scale``.
        logit_clip: soft cap on the logits, or None.
        finish: from attended values (B, H, Nq, Dv) to the layer's output, without dropout.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    terms: PositionTerms
    masks: Tensor | None
    scale: float
    logit_clip: float | None
    finish: Callable[[Tensor], Tensor]

    @torch.no_grad()
    def attention(self) -> Tensor:
        """The weights the layer used, (B, H, Nq, Nk), before dropout."""
        return self._weights(self.terms)

    @torch.no_grad()
    def content(self) -> Tensor:
        """The weights with position removed (masks and softmax scale stay), (B, H, Nq, Nk)."""
        return self._weights(PositionTerms(scale=self.terms.scale))

    @torch.no_grad()
    def position(self) -> Tensor:
        """What position adds to the logits for these q and k, (B, H, Nq, Nk); -inf where a key is hidden."""
        scale = self.scale * self.terms.scale
        content = self.q @ self.k.mT * scale
        added = torch.zeros_like(content)
        if self.terms.rotate_q is not None:
            added = rotate(self.q, self.terms.rotate_q) @ rotate(self.k, self.terms.rotate_k).mT * scale - content
        logits = position_logits(self.q, self.k, self.terms, scale)
        if logits is not None:
            added = added + logits
        visible = intersect(self.terms.visible, self.masks)
        return added if visible is None else added.masked_fill(~visible, float("-inf"))

    def output(self, weights: Tensor) -> Tensor:
        """The layer's output if these were its weights (B, H, Nq, Nk); value terms included."""
        out = weights.to(self.v.dtype) @ self.v
        for part in self.terms.on_value:
            out = out + value_output(weights, part, dense_index(self.terms, part)).to(out.dtype)
        return self.finish(out)

    def _weights(self, terms: PositionTerms) -> Tensor:
        return attention_weights(
            self.q, self.k, terms, scale=self.scale, visible=self.masks, logit_clip=self.logit_clip
        )


def relative_pieces(module: RelativeMultiheadAttention, call: dict[str, Any]) -> Pieces:
    """The pieces of our own layer, from the arguments its ``forward`` was called with."""
    x, context, cache = call["x"], call.get("context"), call.get("cache")
    q_grid, k_grid = call_grids(module, call)
    terms = module.position_terms(
        x,
        x if context is None else context,
        call.get("grid"),
        call.get("context_grid"),
        shared=call.get("shared"),
        keep=call.get("keep"),
        cached=0 if cache is None else cache.length,
    )
    q, k, v = module.project(x, context)
    if cache is not None:
        k, v = copy.copy(cache).extend(k, v)
    masks = _masks(module, call, q, k, q_grid, k_grid)

    def finish(out: Tensor) -> Tensor:
        return module.proj(module.norm(rearrange(out, "b h n d -> b n (h d)")))

    return Pieces(q, k, v, terms, masks, module.scale, module.logit_clip, finish)


def call_grids(module: RelativeMultiheadAttention, call: dict[str, Any]) -> tuple[TokenGrid | None, TokenGrid | None]:
    """The query and key grid of one call."""
    q = call["grid"] if call.get("grid") is not None else module.grid
    return q, call["context_grid"] if call.get("context_grid") is not None else q


def _masks(
    module: RelativeMultiheadAttention,
    call: dict[str, Any],
    q: Tensor,
    k: Tensor,
    q_grid: TokenGrid | None,
    k_grid: TokenGrid | None,
) -> Tensor | None:
    given, key_visible, shared, keep = (call.get(key) for key in ("visible", "key_visible", "shared", "keep"))
    own = None
    if q_grid is not None and k_grid is not None:
        own = geometry_mask(q_grid, k_grid, is_causal=module.causal, window=module.window, device=q.device)
    if own is not None and keep is not None:
        own = PositionTerms(visible=own).take(keep).visible
    masks = intersect(
        None if given is None else as_batch_head(given, q.shape[0], module.num_heads),
        None if key_visible is None else padding(key_visible),
        None if shared is None else shared.visible,
        own,
    )
    return None if masks is None else masks.reshape((1,) * (4 - masks.ndim) + masks.shape)
