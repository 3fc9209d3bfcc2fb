"""Features after chosen blocks, in the forms timm's users expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einops import rearrange
from timm.models._features import feature_take_indices
from torch import Tensor

from vit_rpe.position.geometry import TokenGrid

Indices = int | list[int] | tuple[int, ...] | None


def blocks_info(depth: int, dim: int, reduction: Any) -> list[dict[str, Any]]:
    """What timm calls ``feature_info``: name, channels and reduction (pixels a token) of every block."""
    return [{"module": f"blocks.{i}", "num_chs": dim, "reduction": reduction} for i in range(depth)]


def blocks_to_take(depth: int, indices: Indices, output_fmt: str = "NLC") -> tuple[list[int], int]:
    """The blocks whose output is asked for (the last n, or a list; None: all), and the last of them.

    Raises:
        ValueError: an ``output_fmt`` that is neither ``"NCHW"`` nor ``"NLC"``.
    """
    if output_fmt not in ("NCHW", "NLC"):
        raise ValueError(f"output_fmt must be 'NCHW' or 'NLC', got {output_fmt!r}")
    return feature_take_indices(depth, list(indices) if isinstance(indices, tuple) else indices)


def arrange_features(
    found: Sequence[Tensor],
    final: Tensor | None,
    grid: TokenGrid,
    return_prefix_tokens: bool,
    output_fmt: str,
    output_dict: bool,
) -> Any:
    """What ``forward_intermediates`` of timm returns.

    Args:
        found: outputs of blocks, (B, N, C) each, of tokens on ``grid``.
        final: tokens behind the last norm; None to leave them out.
        return_prefix_tokens: give (spatial, prefix) pairs.
        output_fmt: ``"NCHW"`` or ``"NLC"``.
        output_dict: a dictionary with timm's key names.
    """
    count = grid.num_prefix
    prefix = [tokens[:, :count] for tokens in found] if count and return_prefix_tokens else None
    spatial = [tokens[:, count:] for tokens in found]
    if output_fmt == "NCHW":
        height, width = grid.size
        spatial = [rearrange(t, "b (h w) c -> b c h w", h=height, w=width).contiguous() for t in spatial]
    if output_dict:
        result: dict[str, Any] = {"image_intermediates": spatial}
        if prefix is not None:
            result["image_intermediates_prefix"] = prefix
        if final is not None:
            result["image_features"] = final
        return result
    pairs = spatial if prefix is None else list(zip(spatial, prefix, strict=True))
    return pairs if final is None else (final, pairs)
