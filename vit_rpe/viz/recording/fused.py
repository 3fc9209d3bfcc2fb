"""The call of a layer that no family describes yet and that calls ``scaled_dot_product_attention``: timm's.

The layer is run again on its recorded input while that one function is watched: its arguments are q, k, v and the
mask.

Legend: B batch, H heads, D head width, P grid tokens, N tokens with prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_rpe.attention import AttentionCall
from vit_rpe.position.terms import PositionTerms

_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


class _Watch(TorchFunctionMode):
    """Keep the arguments of the attention call and answer it with ``result`` (zeros by default)."""

    def __init__(self, result: Tensor | None = None) -> None:
        super().__init__()
        self.result = result
        self.calls: list[dict[str, Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        self.calls.append({**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs})
        call = self.calls[-1]
        if self.result is not None:
            return self.result
        return call["query"].new_zeros(*call["query"].shape[:-1], call["value"].shape[-1])


def fused_call(module: nn.Module, inputs: dict[str, Any]) -> AttentionCall:
    """The call of a layer with a ``fused_attn`` switch, from the arguments its ``forward`` was given.

    Raises:
        ValueError: the layer does not call the fused function exactly once.
    """
    with _fused(module), _Watch() as watch:
        module(**inputs)
    if len(watch.calls) != 1:
        raise ValueError(
            f"{type(module).__name__} calls scaled_dot_product_attention {len(watch.calls)} times; "
            "maps can be recomputed where it does so once"
        )
    seen = watch.calls[0]
    q, k, v = seen["query"], seen["key"], seen["value"]
    bias, masks = _bias_and_masks(seen.get("attn_mask"), bool(seen.get("is_causal")), q, k)
    terms = PositionTerms(bias=bias)

    def finish(out: Tensor) -> Tensor:
        with _fused(module), _Watch(out):
            return module(**inputs)

    scale = seen.get("scale")
    return AttentionCall(q, k, v, terms, masks, q.shape[-1] ** -0.5 if scale is None else scale, finish)


@contextmanager
def _fused(module: nn.Module) -> Iterator[None]:
    before = vars(module)["fused_attn"]
    vars(module)["fused_attn"] = True
    try:
        yield
    finally:
        vars(module)["fused_attn"] = before


def _bias_and_masks(
    attn_mask: Tensor | None, is_causal: bool, q: Tensor, k: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """A fused call's mask as a finite bias and a bool mask, four axes each."""
    if is_causal:
        return None, q.new_ones(1, 1, q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    if attn_mask is None:
        return None, None
    attn_mask = attn_mask.reshape((1,) * (4 - attn_mask.ndim) + attn_mask.shape)
    if attn_mask.dtype == torch.bool:
        return None, attn_mask
    hidden = attn_mask == float("-inf")
    return attn_mask.masked_fill(hidden, 0.0), ~hidden if bool(hidden.any()) else None
