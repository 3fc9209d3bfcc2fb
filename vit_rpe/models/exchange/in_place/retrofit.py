"""A position encoding put into an existing timm model, which stays the object it is: ``vit_rpe.add_rpe``.

Legend: B batch, N tokens with prefix, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timm.layers import Attention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from vit_rpe.encodings import Spec, check_resizable, create_encoding, parse_specs
from vit_rpe.layers.options import check_attention
from vit_rpe.models.backbone.loading import resample_on_load
from vit_rpe.models.exchange.in_place.positioned import PositionedAttention, Undecayed, require_own_forward
from vit_rpe.models.exchange.parts import drop_rate, name_of, require, require_foreign
from vit_rpe.models.exchange.placing import start_at_zero
from vit_rpe.models.families import place_layers
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.precision import placement_of


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
    blocks: Any = model.blocks
    for block in blocks:
        require(type(block) is Block, name, f"blocks of type {type(block).__name__}")
        require(type(block.attn) is Attention, name, f"attention of type {type(block.attn).__name__}")
        require_own_forward(block.attn)
    require(drop_rate(getattr(model, "patch_drop", None)) == 0 and not _drops_patches(model), name, "patch dropout")
    grid = native_grid(model)
    device, dtype = placement_of(model.patch_embed)
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
            grid,
            depth_index=index,
            depth=len(blocks),
            device=device,
            dtype=dtype,
        )
        positions.append(position.train(block.attn.training))
    attn_impl = check_attention(attn_impl, positions[0], grid, logit_clip=None, device=device)
    start_at_zero(part for position in positions for part in position.parts())
    # nothing is changed before all are built
    places, _ = place_layers(model, {f"blocks.{index}.attn": block.attn for index, block in enumerate(blocks)})
    for block, position, place in zip(blocks, positions, places.values(), strict=True):
        place.image = grid.size
        block.attn = PositionedAttention(block.attn, position, place, attn_impl)
    resample_on_load(model, native_grid)
    vars(model).update(no_weight_decay=Undecayed(model), set_input_size=Resize(model))
    return model


def native_grid(model: VisionTransformer) -> TokenGrid:
    """Where the tokens of a timm model lie at its native size."""
    return TokenGrid(tuple(model.patch_embed.grid_size), num_prefix=model.num_prefix_tokens)


class Resize:
    """timm's ``set_input_size`` of a model, and the encodings' after it."""

    def __init__(self, model: VisionTransformer) -> None:
        self.model = model

    def __call__(
        self,
        img_size: int | tuple[int, int] | None = None,
        patch_size: int | tuple[int, int] | None = None,
    ) -> None:
        check_resizable(self.model)
        VisionTransformer.set_input_size(self.model, img_size, patch_size)  # type: ignore[arg-type]
        grid, tied = native_grid(self.model), dict[int, nn.Parameter]()
        for module in self.model.modules():
            if isinstance(module, PositionedAttention):
                module.place.image = grid.size
                module.rpe = module.rpe.resized(grid, tied)


def _drops_patches(model: VisionTransformer) -> bool:
    return float(getattr(getattr(model, "patch_drop", None), "prob", 0.0)) > 0
