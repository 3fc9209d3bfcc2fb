"""The blocks of a transformer, and the position that all of them share: built here for images and for sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from timm.layers import calculate_drop_path_rates
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vit_rpe.encodings import PositionEncoding, Spec, create_encoding
from vit_rpe.layers import Block
from vit_rpe.models.backbone.position import split_by_lifetime
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.geometry_cache import is_transformed


def build_blocks(
    depth: int,
    dim: int,
    num_heads: int,
    grid: TokenGrid,
    *,
    rpe: Spec | Sequence[Spec] | None,
    rpe_shared: bool,
    drop_path_rate: float,
    drops_patches: bool = False,
    conditional: bool = False,
    attention: Mapping[str, Any],
    block: Mapping[str, Any],
    factory: Mapping[str, Any],
    deferring: AbstractContextManager[object] | None = None,
) -> tuple[PositionEncoding | None, nn.ModuleList]:
    """Build what all layers share and the layers.

    Args:
        depth: number of blocks; stochastic depth rises over them to ``drop_path_rate``.
        dim, num_heads, grid: C, H and the native grid.
        rpe, rpe_shared: the encodings; one set of parameters for all layers.
        drops_patches: in training the tokens are not those of a whole grid.
        conditional: the first block ends in a :class:`ConditionalPosition`.
        attention, block: options of :class:`RelativeMultiheadAttention` and of :class:`Block`, the same for all layers.
        factory: device and dtype.
        deferring: what the layers (not the shared position) are built within.

    Returns:
        The shared position (None: none), and the blocks.
    """
    once, layerwise = split_by_lifetime(
        rpe,
        grid,
        shared=rpe_shared,
        num_heads=num_heads,
        dim=dim,
        attn_impl=attention["attn_impl"],
        logit_clip=attention["logit_clip"],
        drops_patches=drops_patches,
    )
    shared = create_encoding(once, num_heads, dim // num_heads, grid, **factory) if once else None
    rates: Any = calculate_drop_path_rates(drop_path_rate, depth)
    with deferring or nullcontext():
        blocks = nn.ModuleList(
            Block(
                dim,
                num_heads,
                attention={**attention, "rpe": layerwise, "grid": grid, "depth_index": index, "depth": depth},
                drop_path=rates[index],
                conditional=grid.ndim if conditional and index == 0 else None,
                **block,
                **factory,
            )
            for index in range(depth)
        )
    return shared, blocks


def run_block(block: nn.Module, *args: Any, recompute: bool, **options: Any) -> Tensor:
    """One block; with ``recompute`` its activations are computed again in backward instead of being kept.

    Under ``torch.func`` they are kept: its transforms refuse torch's checkpointing.
    """
    if recompute and not is_transformed():
        return checkpoint(block, *args, use_reentrant=False, **options)
    return block(*args, **options)
