"""Features after chosen blocks, in the forms timm's users expect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from einops import rearrange
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vit_rpe.position.geometry_cache import sharing

if TYPE_CHECKING:
    from vit_rpe.models.vision.vit import VisionTransformer

Indices = int | list[int] | tuple[int, ...] | None


@sharing()
def collect_intermediates(
    model: VisionTransformer,
    x: Tensor,
    indices: Indices,
    *,
    return_prefix_tokens: bool,
    norm: bool,
    stop_early: bool,
    output_fmt: str,
    intermediates_only: bool,
    output_dict: bool,
    attn_mask: Tensor | None,
) -> Any:
    """Run the blocks and keep the outputs asked for.

    Args:
        x: images (B, in_chans, H, W).
        indices: the last n blocks, or a list; None for all.
        return_prefix_tokens: give (spatial, prefix) pairs.
        norm: apply the last norm to each.
        stop_early: do not run the blocks behind the last one asked for.
        output_fmt: ``"NCHW"`` or ``"NLC"``.
        intermediates_only: leave the final features out.
        output_dict: a dictionary with timm's key names.

    Raises:
        ValueError: another ``output_fmt``, or maps asked for while patch dropout removes tokens.
    """
    if output_fmt not in ("NCHW", "NLC"):
        raise ValueError(f"output_fmt must be 'NCHW' or 'NLC', got {output_fmt!r}")
    take, last = feature_take_indices(len(model.blocks), list(indices) if isinstance(indices, tuple) else indices)
    x, grid, keep = model.embed(x)
    if keep is not None and output_fmt == "NCHW":
        raise ValueError("patch dropout is active and leaves no full feature map: use eval() or output_fmt='NLC'")
    shared = model.shared_terms(grid, keep, attn_mask, x)
    found = []
    for index, block in enumerate(model.blocks[: last + 1] if stop_early else model.blocks):
        x = model.run_block(block, x, grid, shared, keep)
        if index in take:
            found.append(model.norm(x) if norm else x)
    count = model.num_prefix_tokens
    prefix = [tokens[:, :count] for tokens in found] if count else None
    spatial = [tokens[:, count:] for tokens in found]
    if output_fmt == "NCHW":
        height, width = grid.size
        spatial = [rearrange(t, "b (h w) c -> b c h w", h=height, w=width).contiguous() for t in spatial]
    if output_dict:
        result: dict[str, Any] = {"image_intermediates": spatial}
        if prefix is not None and return_prefix_tokens:
            result["image_intermediates_prefix"] = prefix
        if not intermediates_only:
            result["image_features"] = model.norm(x)
        return result
    pairs = spatial if prefix is None or not return_prefix_tokens else list(zip(spatial, prefix, strict=True))
    return pairs if intermediates_only else (model.norm(x), pairs)


def prune_blocks(
    model: VisionTransformer, indices: int | list[int], *, prune_norm: bool, prune_head: bool
) -> list[int]:
    """Drop the blocks behind the last one asked for; returns the indices that stay."""
    take, last = feature_take_indices(len(model.blocks), indices)
    model.blocks = model.blocks[: last + 1]
    if prune_norm:
        model.norm = nn.Identity()
    if prune_head:
        model.fc_norm = nn.Identity()
        model.reset_classifier(0, "")
    return take
