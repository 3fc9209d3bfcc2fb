"""FlexAttention: torch compiles the terms into its attention, as a function of one logit and its place.

No mask of all pairs exists, and blocks of queries and keys in which nothing is visible are skipped.
Flex Attention, arXiv 2412.05496.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from vit_rpe.attention.flex.blocks import block_mask, of_geometry, of_mask
from vit_rpe.attention.flex.scores import score_function
from vit_rpe.attention.per_axis import absorb_constants
from vit_rpe.attention.placement import placed
from vit_rpe.attention.reference import Options, eager
from vit_rpe.position.terms import PositionTerms, grids_of

LEAST_WIDTH = 16
"""Channels of a head below which torch's CUDA kernel does not compute."""
CPU_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def flex(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    """The kernel ``"flex"``."""
    if prod(q.shape) == 0:
        return eager(q, k, v, terms, options)
    sights = [] if options.visible is None else [of_mask(options.visible)]
    if terms.geometric_mask is not None:
        sights.append(of_geometry(terms.geometric_mask, *grids_of(terms), q.device))
    shifted, rest = absorb_constants(q, terms)
    arguments: Any = {
        "score_mod": score_function(q, k, rest, scale=options.scale, logit_clip=options.logit_clip),
        "block_mask": block_mask(sights, q.shape[2], k.shape[2]) if sights else None,
        "scale": options.scale,
    }
    q, k = placed(shifted, k, terms)
    if not torch.is_grad_enabled():
        q, k, v = q.detach(), k.detach(), v.detach()  # what seems to need a gradient is refused on the CPU
    if torch.compiler.is_compiling():
        return flex_attention(q, k, v, **arguments)
    with torch._dynamo.utils.disable_cache_limit():  # a program for every structure of terms, none for a layer
        return _compiled(q.device.type)(q, k, v, **arguments)


@cache
def _compiled(device: str) -> Any:
    # with ten sizes that are symbols or more, torch 2.14 writes C++ that does not compile
    return torch.compile(flex_attention, dynamic=False if device == "cpu" else None)


def flex_refuses(terms: PositionTerms) -> str | None:
    """Why the terms cannot be computed so, or None."""
    if terms.on_value:
        return "relative vectors on the values need the attention weights; use 'eager'"
    if any(part.axis is None for part in (*terms.on_query, *terms.on_key)):
        return "relative vectors that depend on several axes at once are not looked up by it; use 'sdpa'"
    return "features are channels, not values of pairs; use 'fold'" if terms.features else None


def flex_cannot(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> str | None:
    """Why this call cannot be made, whose terms can be computed; or None."""
    if options.dropout_p > 0:
        return f"FlexAttention drops no weights, and dropout is {options.dropout_p}; use 'sdpa'"
    if torch.compiler.is_exporting():
        return "FlexAttention cannot be exported; use 'auto'"
    if q.device.type == "cuda" and min(q.shape[3], v.shape[3]) < LEAST_WIDTH:
        return f"FlexAttention needs heads of at least {LEAST_WIDTH} channels on CUDA, got {q.shape[3]}"
    if q.device.type != "cpu":
        return None
    if torch.compiler.is_compiling():
        return "FlexAttention is compiled by itself on the CPU, not as part of a model; do not compile the model"
    if torch.is_grad_enabled() and any(map(_learns, (q, k, v, *_tables(terms)))):
        return "torch has no backward of FlexAttention on the CPU; train with 'auto', or call it under torch.no_grad()"
    if q.dtype not in CPU_DTYPES:
        known = ", ".join([str(dtype) for dtype in CPU_DTYPES])
        return f"FlexAttention computes in {known} on the CPU, got {q.dtype}"
    return None


def _learns(tensor: Tensor) -> bool:
    return tensor.requires_grad


def _tables(terms: PositionTerms) -> list[Tensor]:
    """What of the terms may need a gradient beside q and k."""
    dense = [values for values in (terms.bias, terms.prefix_bias) if values is not None]
    per_axis = [part.bias for part in terms.axis_bias]
    return [*dense, *terms.offset_bias, *per_axis, *[part.table for part in (*terms.on_query, *terms.on_key)]]
