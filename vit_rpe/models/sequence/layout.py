"""Where the tokens of a sequence lie, behind those of a cache, and what all layers are told of it.

Legend: B batch, N tokens of a sequence, P prefix tokens.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from vit_rpe.layers.kv_cache import DecodingCache, LayerCache
from vit_rpe.models.backbone.position import once_for_all_layers
from vit_rpe.models.sequence.io import check_input
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.masks import geometric_mask
from vit_rpe.position.terms import NOTHING, PositionTerms, combine


def lay_out(
    x: Tensor,
    visible: Tensor | None,
    cache: DecodingCache | None,
    context: int | None,
    *,
    vocab_size: int | None,
    in_features: int | None,
    native: TokenGrid,
) -> tuple[TokenGrid, TokenGrid, Tensor | None]:
    """The grids of queries and keys, and which keys are no padding, bool (B, P + N); checks that all go together.

    Both grids know the context limit as their extent. Without a limit it is the native length, or the sequence where
    that is longer. So a sequence gets the same answer alone, padded, or decoded step by step.

    Args:
        x, visible, cache, context: as :meth:`SequenceTransformer.forward` is given them.
        vocab_size, in_features: what the model takes.
        native: its native grid.

    Raises:
        ValueError: another input, a cache beside ``visible`` or ``context``, more tokens than the context limit.
    """
    check_input(x, vocab_size, in_features)
    if cache is not None:
        if visible is not None or context is not None:
            raise ValueError("with a cache every token is visible, and its own context limit holds")
        context = cache.context
    cached = 0 if cache is None else cache.length
    total = cached + x.shape[1]
    if context is not None and total > context:
        raise ValueError(f"{total} tokens do not fit the context limit of {context}")
    extent = (max(native.size[0], total) if context is None else context,)
    if visible is not None and native.num_prefix:
        visible = pad(visible, (native.num_prefix, 0), value=True)
    key = TokenGrid((total,), native.num_prefix, extent=extent)
    query = TokenGrid((x.shape[1],), origin=(cached,), extent=extent) if cached else key
    return query, key, visible


def layer_cache(cache: DecodingCache | None, index: int) -> LayerCache | None:
    """The part of a cache that is one layer's."""
    return None if cache is None else cache.layers[index]


def shared_between_layers(
    rpe: Any, q: TokenGrid, k: TokenGrid, device: Device, *, causal: bool, window: int | tuple[int, ...] | None
) -> PositionTerms:
    """What all layers share, computed once: shared encodings, window, causal order."""
    mask = geometric_mask(is_causal=causal, window=window)
    terms = NOTHING if mask is None else PositionTerms(geometric_mask=mask, grids=(q, k))
    return terms if rpe is None else combine(once_for_all_layers(rpe(q, k, device)), terms)
