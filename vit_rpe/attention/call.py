"""One attention call: all that a layer applies, and all that somebody who looks at it later has to know.

Legend: B batch, H heads, D head width, Dv value width, C channels, Nq/Nk query/key tokens with prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.attention.dispatch import attend, kernel_name
from vit_rpe.attention.lazy_terms import LazyTerms, Position, content_terms, terms_of
from vit_rpe.attention.placement import placed_plainly
from vit_rpe.attention.reference import Mix, attention_weights, position_logits, value_output
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.masks import intersect
from vit_rpe.position.terms import PositionTerms, dense_index, dense_visible, grids_of

MIXING = ("auto", "eager")
"""Kernels that can be asked for where heads are mixed: the weights must exist."""


def check_mixing(impl: str) -> None:
    """Raise ValueError unless ``impl`` is one of :data:`MIXING`."""
    if kernel_name(impl) not in MIXING:
        raise ValueError(f"attn_impl={impl!r} cannot mix heads: use one of {', '.join(MIXING)}")


class AttentionCall(NamedTuple):
    """What one attention layer does with one input, before anything of it is computed but the projections.

    A layer's forward applies it, a recorder explains it; whoever puts position into another model's attention makes
    one from that attention's input.

    Attributes:
        q: (B, H, Nq, D), k: (B, H, Nk, D), v: (B, H, Nk, Dv); q and k as they meet the terms, before rotation.
        position: what position adds, as terms or as :class:`LazyTerms`.
        visible: what hides keys whatever the position encoding (padding, the caller's mask), bool (B or 1, H or 1,
            Nq or 1, Nk), beside the geometric mask of ``position``; None hides nothing.
        scale: softmax scale without ``terms.scale``.
        finish: from attended values (B, H, Nq, Dv) to what the layer gives back.
        logit_clip: soft cap on the logits, or None.
        dropout_p: probability of dropping an attention weight in this call.
        q_grid, k_grid: where queries and keys lie; None where that is not known or not a grid (dropped tokens).
        mix_logits, mix_weights: talking heads: what the heads tell each other before and after the softmax, or None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    position: Position
    visible: Tensor | None
    scale: float
    finish: Callable[[Tensor], Tensor]
    logit_clip: float | None = None
    dropout_p: float = 0.0
    q_grid: TokenGrid | None = None
    k_grid: TokenGrid | None = None
    mix_logits: Mix | None = None
    mix_weights: Mix | None = None

    @property
    def terms(self) -> PositionTerms:
        """What position adds, for all queries at once."""
        return terms_of(self.position)

    @property
    def masks(self) -> Tensor | None:
        """What hides keys whatever the position encoding, bool (B or 1, H or 1, Nq or 1, Nk); None hides nothing."""
        position = self.position
        if position.geometric_mask is None:
            return self.visible
        grids = (position.q_grid, position.k_grid) if isinstance(position, LazyTerms) else grids_of(position)
        return intersect(position.geometric_mask.dense(*grids, self.q.device)[None, None], self.visible)

    def attend(self, impl: str = "auto") -> Tensor:
        """The attended values, (B, H, Nq, Dv), by the kernel ``impl``.

        Raises:
            ValueError: a kernel that cannot compute it; talking heads are for ``"auto"`` and ``"eager"``.
        """
        if self.mix_logits is not None or self.mix_weights is not None:
            check_mixing(impl)
            return self._attended(self.weights())
        return attend(
            self.q,
            self.k,
            self.v,
            self.position,
            scale=self.scale,
            visible=self.visible,
            dropout_p=self.dropout_p,
            logit_clip=self.logit_clip,
            impl=impl,
        )

    def weights(self) -> Tensor:
        """The attention weights by their definition, (B, H, Nq, Nk): after the softmax, before ``mix_weights`` and
        dropout."""
        return self._weights(self.terms)

    def content_weights(self) -> Tensor:
        """The weights with position removed; masks and the softmax scale stay. (B, H, Nq, Nk)."""
        return self._weights(content_terms(self.position))

    def position_logits(self) -> Tensor:
        """What position adds to the logits of these q and k, (B, H, Nq, Nk); -inf where a key is hidden."""
        terms = self.terms
        scale = self.scale * terms.scale
        added = self.q.new_zeros(*self.q.shape[:3], self.k.shape[2])
        if terms.moves:
            here, still = (placed_plainly(self.q, self.k, each) for each in (terms, terms.of_content()))
            added = (here[0] @ here[1].mT - still[0] @ still[1].mT) * scale
        logits = position_logits(self.q, self.k, terms, scale)
        if logits is not None:
            added = added + logits
        if self.mix_logits is not None:
            added = self.mix_logits(added) - self.mix_logits(torch.zeros_like(added))  # less the mix's own bias
        visible = intersect(dense_visible(terms, self.q.device), self.visible)
        return added if visible is None else added.masked_fill(~visible, float("-inf"))

    def output(self, weights: Tensor) -> Tensor:
        """What the layer gives back for attention weights (B, H, Nq, Nk): differentiable in them."""
        return self.finish(self._replace(dropout_p=0.0)._attended(weights))

    def _attended(self, weights: Tensor) -> Tensor:
        """Attended values for the weights behind the softmax."""
        terms = self.terms
        if self.mix_weights is not None:
            weights = self.mix_weights(weights)
        weights = F.dropout(weights, self.dropout_p)
        out = weights.to(self.v.dtype) @ self.v
        for part in terms.on_value:
            out = out + value_output(weights, part, dense_index(terms, part)).to(out.dtype)
        return out

    def _weights(self, terms: PositionTerms) -> Tensor:
        return attention_weights(
            self.q,
            self.k,
            terms,
            scale=self.scale,
            visible=self.visible,
            logit_clip=self.logit_clip,
            mix=self.mix_logits,
        )
