"""Where a model keeps its encodings, and what it computes once for all layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.attention import check_kernel, materialize_bias
from vit_rpe.checks import plain
from vit_rpe.encodings import (
    Spec,
    create_encoding,
    encoding_options,
    find_encodings,
    parse_specs,
)
from vit_rpe.layers.options import check_attention
from vit_rpe.position.geometry import TokenGrid, are_constants
from vit_rpe.position.masks import geometric_mask
from vit_rpe.position.terms import NOTHING, PositionTerms, combine

Specs = list[dict[str, Any]]


def split_by_lifetime(
    rpe: Spec | Sequence[Spec] | None,
    grid: TokenGrid,
    *,
    shared: bool,
    num_heads: int,
    dim: int,
    attn_impl: str,
    logit_clip: float | None,
    drops_patches: bool = False,
) -> tuple[Specs, Specs]:
    """Which encodings are called once per forward, and which live in every layer.

    Once: those without parameters, and with ``shared`` all; but those that differ by layer, or read what a layer
    holds, always live in the layers.

    Raises:
        ValueError: an unknown name or option, encodings that exclude each other, a width that heads do not divide,
            ``shared`` without parameters to share, a kernel that cannot compute the encodings, or not of the patches
            that are left where the model ``drops_patches``.
    """
    if dim % num_heads != 0:
        raise ValueError(f"embed_dim must be divisible by num_heads, got {dim} and {num_heads}")
    once: Specs = []
    layerwise: Specs = []
    # Built together, so that what excludes each other is refused here, wherever each of them is going to live.
    specs = parse_specs(rpe)
    probe = create_encoding(specs, num_heads, dim // num_heads, grid, device="meta")
    check_attention(attn_impl, probe if specs else None, grid, logit_clip=logit_clip, device="meta")
    if drops_patches and attn_impl != "auto":
        tiny = TokenGrid((2,) * grid.ndim, num_prefix=grid.num_prefix)
        left = probe(tiny, tiny, "meta").take(torch.zeros(1, 2, dtype=torch.int64, device="meta"))
        try:
            check_kernel(attn_impl, left, logit_clip=logit_clip)
        except ValueError as error:
            raise ValueError(f"with patch_drop_rate > 0, {error}") from error
    nothing_shared = True
    for spec, part in zip(specs, probe.parts(), strict=False):  # without a spec the probe is "none"
        by_layer = part.card.content or "depth_index" in encoding_options(spec["name"])
        parameterless = next(part.parameters(), None) is None
        (once if not by_layer and (shared or parameterless) else layerwise).append(spec)
        nothing_shared = nothing_shared and (by_layer or parameterless)
    if shared and nothing_shared:
        raise ValueError(f"rpe_shared=True, but rpe={rpe!r} has no parameters that layers could share: leave it False")
    return once, layerwise


def once_for_all_layers(terms: PositionTerms) -> PositionTerms:
    """Terms that every layer is handed: what is cheap to keep is spread over pairs once, not in each layer."""
    return materialize_bias(terms)


def shared_terms(
    rpe: Any,
    grid: TokenGrid,
    keep: Tensor | None,
    attn_mask: Tensor | None,
    x: Tensor,
    *,
    causal: bool,
    window: int | tuple[int, ...] | None,
) -> PositionTerms:
    """What all layers of a model share, computed once: shared encodings, window, causal order, the caller's mask.

    Args:
        rpe: the shared encoding; None for none.
        grid: where all tokens lie, of which ``keep`` (B, M) are left (None: all).
        attn_mask: see :func:`mask_terms`.
        x: the tokens, for batch and device.
    """
    terms = mask_terms(attn_mask, grid, causal=causal, window=window, batch=x.shape[0])
    if rpe is not None:
        terms = combine(once_for_all_layers(rpe(grid, grid, x.device)), terms)
    return terms if keep is None else terms.take(keep)


class RebuildArguments:
    """timm's ``_model_args``, the arguments that build a model again, with what its encodings remember since."""

    def __get__(self, model: Any, owner: type) -> Any:
        if model is None:
            return self
        args = dict(vars(model).get("_given_args", {}))
        specs = remembered_specs(model, args.get("rpe"))
        return args if specs is None else {**args, "rpe": specs}

    def __set__(self, model: Any, args: dict[str, Any]) -> None:
        vars(model)["_given_args"] = plain(dict(args))


def remembered_specs(model: nn.Module, rpe: Spec | Sequence[Spec] | None) -> Specs | None:
    """``rpe`` with the native size that encodings inside a model were trained on, where that is not the model's own;
    None where nothing differs."""
    found = {encoding.name: encoding for _, encoding in find_encodings(model)}
    natives = {name: encoding.remembered().get("native", encoding.grid.size) for name, encoding in found.items()}
    kept = {name: {"native": size} for name, size in natives.items() if size != found[name].grid.size}
    specs = [{"name": name} for name in found] if rpe is None else parse_specs(rpe)
    return [{**spec, **kept.get(spec["name"], {})} for spec in specs] if kept else None


def mask_terms(
    attn_mask: Tensor | None,
    grid: TokenGrid,
    *,
    causal: bool,
    window: int | tuple[int, ...] | None,
    batch: int,
) -> PositionTerms:
    """The model's own masks and the caller's, as terms.

    Args:
        attn_mask: timm's convention, bool (True = may see) or a float bias; (N, N), (B, N, N) or (B, H, N, N), each
            entry 1 for an explicit broadcast.
        batch: B.

    Raises:
        ValueError: another dtype or shape.
    """
    mask = geometric_mask(is_causal=causal, window=window)
    hidden = NOTHING if mask is None else PositionTerms(geometric_mask=mask, grids=(grid, grid))
    if attn_mask is None:
        return hidden
    _check_attn_mask(attn_mask, batch, grid.num_tokens)
    if attn_mask.ndim < 4:
        attn_mask = attn_mask[(None, None) if attn_mask.ndim == 2 else (slice(None), None)]
    if attn_mask.dtype != torch.bool:
        # -inf hides a key; as a mask it also covers rows that hide every key
        visible = attn_mask.ne(float("-inf"))
        return hidden._replace(bias=attn_mask.masked_fill(~visible, 0.0), visible=visible)
    return hidden._replace(visible=attn_mask)


def _check_attn_mask(attn_mask: Tensor, batch: int, num_tokens: int) -> None:
    shape, square = tuple(attn_mask.shape), f"{num_tokens}, {num_tokens}"
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise ValueError(f"attn_mask must be bool (True = may see) or a float bias, got {attn_mask.dtype} {shape}")
    expected = dict(zip((-1, -2, 0), (num_tokens, num_tokens, batch)[: 2 + (len(shape) > 2)], strict=False))
    fits = len(shape) in (2, 3, 4) and all(
        shape[dim] in (1, length) for dim, length in expected.items() if are_constants(shape[dim], length)
    )
    if not fits:
        raise ValueError(
            f"attn_mask must be ({square}), ({batch}, {square}) or ({batch}, heads, {square}), got {shape}"
        )
