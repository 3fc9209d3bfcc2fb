"""From pixels to tokens: patches, absolute embedding, prefix tokens, patch dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vit_rpe.layers.absolute import resample_embedding, sincos_embedding
from vit_rpe.models.backbone.remember import remember_input_size
from vit_rpe.position.geometry import TokenGrid

torch.fx.wrap("sincos_embedding")

if TYPE_CHECKING:
    from vit_rpe.models.vision.vit import VisionTransformer


def embed_images(model: VisionTransformer, images: Tensor) -> tuple[Tensor, TokenGrid, Tensor | None]:
    """Images (B, in_chans, H, W) to tokens.

    Returns:
        tokens (B, N, C), the grid they lie on, and which of its tokens patch dropout kept, int64 (B, M); None: all.
    """
    x = model.patch_embed(images)
    # without dynamic_img_size the patch embedding refuses any other size: constants, also for tracers
    grid = model.grid
    if model.dynamic_img_size:
        grid = TokenGrid((x.shape[1], x.shape[2]), num_prefix=model.num_prefix_tokens)
    x = x.flatten(1, 2)
    if model.pos_embed_type == "sincos":
        x = x + sincos_embedding(grid, model.embed_dim, device=x.device).to(x.dtype)
    learned = _learned_embedding(model, grid)
    if learned is not None and model.no_embed_class:
        x = x + learned
    prefix = [token for token in (model.cls_token, model.reg_token) if token is not None]
    if prefix:
        x = torch.cat([token.expand(x.shape[0], -1, -1) for token in prefix] + [x], dim=1)
    if learned is not None and not model.no_embed_class:
        x = x + learned
    x = model.pos_drop(x)
    keep = None
    if model.patch_drop is not None:
        x, keep = model.patch_drop(x)
        if keep is not None:
            front = torch.arange(grid.num_prefix, device=x.device).expand(x.shape[0], -1)
            keep = torch.cat([front, keep + grid.num_prefix], dim=1)
    return model.norm_pre(x), grid, keep


def resize_model(
    model: VisionTransformer,
    img_size: int | tuple[int, int] | None,
    patch_size: int | tuple[int, int] | None,
) -> None:
    """Make another resolution the native one: resample embeddings and tables, replacing the parameters."""
    before = tuple(model.patch_embed.grid_size)
    model.patch_embed.set_input_size(img_size=img_size, patch_size=patch_size)
    remember_input_size(model, tuple(model.patch_embed.img_size), patch_size=patch_size)
    if model.pos_embed is not None:
        resampled = resample_embedding(
            model.pos_embed.detach(), before, model.patch_embed.grid_size, num_prefix=embedded_prefix(model)
        )
        model.pos_embed = nn.Parameter(resampled.clone(), requires_grad=model.pos_embed.requires_grad)


def embedded_prefix(model: VisionTransformer) -> int:
    """Rows of the learned embedding that belong to prefix tokens."""
    return 0 if model.no_embed_class else model.num_prefix_tokens


def _learned_embedding(model: VisionTransformer, grid: TokenGrid) -> Tensor | None:
    if model.pos_embed is None or not model.dynamic_img_size:
        return model.pos_embed
    return resample_embedding(
        model.pos_embed, model.patch_embed.grid_size, grid.size, num_prefix=embedded_prefix(model)
    )
