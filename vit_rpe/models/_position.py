"""Where a model keeps its encodings, and what it computes once for all layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from timm.models import register_notrace_module
from torch import Tensor

from vit_rpe.attention.windows import LARGE
from vit_rpe.encodings import (
    CombinedEncoding,
    Spec,
    create_position,
    encoding_class,
    encoding_options,
    encodings_of,
    list_encodings,
    parse_specs,
)
from vit_rpe.geometry import Device, TokenGrid
from vit_rpe.layers import geometry_mask
from vit_rpe.terms import PositionTerms, settled

for _name in list_encodings():
    register_notrace_module(encoding_class(_name))
register_notrace_module(CombinedEncoding)

Specs = list[dict[str, Any]]


def split_by_lifetime(
    rpe: Spec | Sequence[Spec] | None, grid: TokenGrid, *, shared: bool, num_heads: int, dim: int
) -> tuple[Specs, Specs]:
    """Which encodings are called once per forward, and which live in every layer.

    Once: those without parameters, and with ``shared`` all; but those that differ by layer always live in the layers.

    Raises:
        ValueError: an unknown name or option, encodings that exclude each other, a width that heads do not divide.
    """
    if dim % num_heads != 0:
        raise ValueError(f"embed_dim must be divisible by num_heads, got {dim} and {num_heads}")
    once: Specs = []
    layerwise: Specs = []
    # Built together, so that what excludes each other is refused here, wherever each of them is going to live.
    probes = encodings_of(create_position(rpe, num_heads, dim // num_heads, grid, device="meta"))
    for spec, probe in zip(parse_specs(rpe), probes, strict=True):
        by_layer = "depth_index" in encoding_options(spec["name"])
        parameterless = next(probe.parameters(), None) is None
        (once if not by_layer and (shared or parameterless) else layerwise).append(spec)
    return once, layerwise


def once_for_all_layers(terms: PositionTerms) -> PositionTerms:
    """Terms that every layer is handed: what is cheap to keep is spread over pairs once, not in each layer."""
    return settled(terms, LARGE // 4)


def mask_terms(
    attn_mask: Tensor | None,
    grid: TokenGrid,
    *,
    causal: bool,
    window: int | tuple[int, ...] | None,
    device: Device,
) -> PositionTerms:
    """The model's own masks and the caller's, as terms.

    Args:
        attn_mask: timm's convention, bool (True = may see) or a float bias; (N, N), (B, N, N) or (B, H or 1, N, N).

    Raises:
        ValueError: another number of axes.
    """
    visible = geometry_mask(grid, grid, is_causal=causal, window=window, device=device)
    if attn_mask is None:
        return PositionTerms(visible=visible)
    if attn_mask.ndim not in (2, 3, 4):
        raise ValueError(f"attn_mask must be (N, N), (B, N, N) or (B, heads, N, N), got {tuple(attn_mask.shape)}")
    if attn_mask.ndim < 4:
        attn_mask = attn_mask[(None, None) if attn_mask.ndim == 2 else (slice(None), None)]
    if attn_mask.dtype != torch.bool:
        # -inf hides a key; as a mask it also covers rows that hide every key
        return PositionTerms(
            bias=attn_mask.masked_fill(attn_mask == float("-inf"), 0.0),
            visible=attn_mask.ne(float("-inf")) if visible is None else visible & attn_mask.ne(float("-inf")),
        )
    return PositionTerms(visible=attn_mask if visible is None else visible & attn_mask)
