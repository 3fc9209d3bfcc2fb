"""A position encoding put into an existing timm model, which stays the object it is: ``vit_rpe.add_rpe``.

Legend: B batch, N tokens with prefix, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from einops import rearrange
from timm.layers import Attention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from vit_rpe.attention import KERNELS, attend
from vit_rpe.checks import unknown_name
from vit_rpe.encodings import Spec, create_encoding, parse_specs
from vit_rpe.models.backbone.position import mask_terms
from vit_rpe.models.exchange.parts import drop_rate, name_of, require, require_foreign
from vit_rpe.models.exchange.start import start_at_zero
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import combine


def add_rpe(model: nn.Module, rpe: Spec | Sequence[Spec], *, attn_impl: str = "auto") -> nn.Module:
    """Put an encoding into every block of a timm ``VisionTransformer``, in place.

    Encodings that only add to the logits start at zero: the function is the same at first. Others warn. All weights
    keep their names; the new ones are ``blocks.{i}.attn.rpe.*``. ``set_input_size`` and ``no_weight_decay`` of the
    model know of them.

    Args:
        model: a timm ``VisionTransformer`` with plain blocks.
        rpe: an encoding by name, ``{"name": ..., option: ...}``, or a list of those.
        attn_impl: ``"auto"`` or an attention kernel by name.

    Returns:
        The same object.

    Raises:
        ValueError: another kind of model or attention, patch dropout, an unknown encoding or kernel.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"add_rpe is for timm's VisionTransformer, got {model!r}")
    name = name_of(model)
    require_foreign(model)
    if not isinstance(model, VisionTransformer):
        raise ValueError(
            f"add_rpe is for timm's VisionTransformer, got {name} of type {type(model).__name__}: "
            "vit_rpe.from_timm converts more kinds"
        )
    if attn_impl != "auto" and attn_impl not in KERNELS:
        raise unknown_name("attn_impl", attn_impl, ["auto", *KERNELS])
    blocks: Any = model.blocks
    for block in blocks:
        require(type(block) is Block, name, f"blocks of type {type(block).__name__}")
        require(type(block.attn) is Attention, name, f"attention of type {type(block.attn).__name__}")
        require(getattr(block.attn, "gate", None) is None, name, "a gate on the attention output")
    require(drop_rate(getattr(model, "patch_drop", None)) == 0 and not _drops_patches(model), name, "patch dropout")
    where = GridInHand(TokenGrid(tuple(model.patch_embed.grid_size), num_prefix=model.num_prefix_tokens))
    reference = model.patch_embed.proj.weight
    specs = parse_specs(rpe)
    if not specs:
        raise ValueError(f"rpe={rpe!r} adds nothing")
    positions = []
    for index, block in enumerate(blocks):
        heads, width = block.attn.num_heads, block.attn.head_dim
        position = create_encoding(
            specs,
            heads,
            width,
            where.grid,
            depth_index=index,
            depth=len(blocks),
            device=reference.device,
            dtype=reference.dtype,
        )
        positions.append(position)
    start_at_zero(part for position in positions for part in position.parts())
    for block, position in zip(blocks, positions, strict=True):  # nothing is changed before all are built
        block.attn = PositionedAttention(block.attn, position, where, attn_impl).train(block.attn.training)
    model.patch_embed.register_forward_hook(where)
    undecayed = model.no_weight_decay()
    for path, module in model.named_modules():
        if isinstance(module, PositionedAttention):
            undecayed = undecayed | {f"{path}.rpe.{own}" for own in module.rpe.no_weight_decay()}
    vars(model).update(no_weight_decay=Names(undecayed), set_input_size=Resize(model))
    return model


class GridInHand:
    """The grid of the tokens that are under way; a forward hook of the patch embedding keeps it right."""

    def __init__(self, grid: TokenGrid) -> None:
        self.grid = grid

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if output.ndim == 4:  # dynamic_img_size: (B, height, width, C)
            self.grid = TokenGrid((output.shape[1], output.shape[2]), num_prefix=self.grid.num_prefix)


class Names:
    """A callable that gives fixed parameter names."""

    def __init__(self, names: set[str]) -> None:
        self.names = set(names)

    def __call__(self) -> set[str]:
        return set(self.names)


class Resize:
    """timm's ``set_input_size`` of a model, and the encodings' after it."""

    def __init__(self, model: VisionTransformer) -> None:
        self.model = model

    def __call__(
        self,
        img_size: int | tuple[int, int] | None = None,
        patch_size: int | tuple[int, int] | None = None,
    ) -> None:
        VisionTransformer.set_input_size(self.model, img_size, patch_size)  # type: ignore[arg-type]
        grid = TokenGrid(tuple(self.model.patch_embed.grid_size), num_prefix=self.model.num_prefix_tokens)
        for module in self.model.modules():
            if isinstance(module, PositionedAttention):
                module.where.grid = grid
                module.rpe = module.rpe.resized(grid)


class PositionedAttention(nn.Module):
    """The layers of a timm ``Attention``, under their names, with position terms in between.

    Args:
        attention: whose layers are taken over.
        position: the encoding, found at ``rpe``.
        where: knows the grid of the tokens at every call.
    """

    def __init__(self, attention: Attention, position: Any, where: GridInHand, attn_impl: str) -> None:
        super().__init__()
        self.num_heads = attention.num_heads
        self.scale = attention.scale
        self.attn_impl = attn_impl
        self.where = where
        self.qkv = attention.qkv
        self.q_norm = attention.q_norm
        self.k_norm = attention.k_norm
        self.attn_drop = attention.attn_drop
        self.norm = attention.norm
        self.proj = attention.proj
        self.proj_drop = attention.proj_drop
        self.rpe = position

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Tokens (B, N, C) to (B, N, C); masks as in timm."""
        grid = self.where.grid
        q, k, v = rearrange(self.qkv(x), "b n (three h d) -> three b h n d", three=3, h=self.num_heads).unbind(0)
        if is_causal:
            attn_mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        masks = mask_terms(attn_mask, grid, causal=False, window=None, batch=x.shape[0], device=x.device)
        out = attend(
            self.q_norm(q),
            self.k_norm(k),
            v,
            combine(self.rpe(grid, grid, x.device), masks),
            scale=self.scale,
            dropout_p=self.attn_drop.p if self.training else 0.0,
            impl=self.attn_impl,
        )
        return self.proj_drop(self.proj(self.norm(rearrange(out, "b h n d -> b n (h d)"))))


def _drops_patches(model: VisionTransformer) -> bool:
    return float(getattr(getattr(model, "patch_drop", None), "prob", 0.0)) > 0
