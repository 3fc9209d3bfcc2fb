"""A vision transformer whose attention knows relative position.

Parameter names, options and methods are those of timm's ``VisionTransformer``, so that its weights and tools fit; what
is new is ``rpe`` and what belongs to it.

Legend: B batch, P patches, N = prefix + P tokens, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from timm.layers import PatchDropoutWithIndices, calculate_drop_path_rates
from timm.models import register_notrace_function, register_notrace_module
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vit_rpe.checks import check_count, check_rates
from vit_rpe.encodings import Spec, create_encoding
from vit_rpe.layers import Block, RelativeMultiheadAttention
from vit_rpe.layers.absolute import check_pos_embed, sincos_embedding
from vit_rpe.layers.options import as_window
from vit_rpe.models.backbone.factories import LayerType, act_factory, mlp_factory, norm_factory
from vit_rpe.models.backbone.freeze import freeze_positions, unfreeze_positions
from vit_rpe.models.backbone.position import mask_terms, once_for_all_layers, split_by_lifetime
from vit_rpe.models.backbone.weights import draw_tokens, draw_weights, drawn_later, undecayed
from vit_rpe.models.vision.checks import check_divides, check_pool
from vit_rpe.models.vision.embed import embed_images, resize_model
from vit_rpe.models.vision.head import build_head, pool_tokens, reset_head
from vit_rpe.models.vision.intermediates import collect_intermediates, prune_blocks
from vit_rpe.models.vision.loading import before_load
from vit_rpe.models.vision.patches import Patches
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import sharing
from vit_rpe.position.terms import PositionTerms, combine

# what position needs is no graph of tensors: FX tracers take these as single steps
register_notrace_module(RelativeMultiheadAttention)
register_notrace_function(combine)
register_notrace_function(mask_terms)


class VisionTransformer(nn.Module):
    """Vision transformer with relative position (An Image is Worth 16x16 Words, arXiv 2010.11929).

    Args:
        img_size, patch_size: pixels, an int or (height, width); the sides must be divisible.
        in_chans: image channels.
        num_classes: 0 for no classifier.
        global_pool: ``"avg"``, ``"avgmax"``, ``"max"``, ``"token"``, ``"map"`` (attention pooling) or ``""``.
        embed_dim, depth, num_heads, mlp_ratio: C, number of blocks, heads, MLP width over C.
        rpe: ``"none"``, an encoding by name, ``{"name": ..., option: ...}``, or a list of those.
        rpe_shared: one set of parameters for all layers.
        pos_embed: absolute embedding beside it, ``"none"``, ``"learned"`` or ``"sincos"``.
        window: local attention, patches up to this many steps away along each axis; an int or (height, width).
        causal: a patch sees the patches before it in raster order.
        attn_impl: ``"auto"`` or an attention kernel by name.
        logit_clip: soft cap on attention logits, a debugging aid.
        class_token, reg_tokens, no_embed_class: prefix tokens, and whether ``pos_embed`` leaves them out.
        qkv_bias, proj_bias, qk_norm, scale_attn_norm, scale_mlp_norm, init_values: of the blocks, as in timm.
        pre_norm, final_norm, fc_norm: norms around the blocks, as in timm.
        pool_include_prefix: average over prefix tokens too.
        dynamic_img_size, dynamic_img_pad: accept any size per forward; pad to whole patches.
        drop_rate, pos_drop_rate, patch_drop_rate, proj_drop_rate, attn_drop_rate, drop_path_rate: regularisation.
        weight_init: as in timm, ``""``, ``"jax"``, ``"jax_nlhb"``, ``"moco"``, ``"reset"`` or ``"skip"``.
        norm_layer, act_layer, mlp_layer, embed_layer: factories or names (``mlp_layer``: ``"mlp"``, ``"swiglu"``,
            ``"swiglu_packed"``); norm_eps: of every norm, None for the layer's own.

    Raises:
        ValueError: sizes that do not divide, unknown names, token pooling without a class token.
    """

    norm: nn.Module
    attn_pool: nn.Module | None
    fc_norm: nn.Module
    head: nn.Module

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        mlp_ratio: float = 4.0,
        *,
        rpe: Spec | Sequence[Spec] | None = "bias",
        rpe_shared: bool = False,
        pos_embed: Literal["none", "learned", "sincos"] = "none",
        window: int | tuple[int, int] | None = None,
        causal: bool = False,
        attn_impl: str = "auto",
        logit_clip: float | None = None,
        class_token: bool = False,
        reg_tokens: int = 0,
        no_embed_class: bool = False,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        qk_norm: bool = False,
        scale_attn_norm: bool = False,
        scale_mlp_norm: bool = False,
        init_values: float | None = None,
        pre_norm: bool = False,
        final_norm: bool = True,
        fc_norm: bool | None = None,
        pool_include_prefix: bool = False,
        dynamic_img_size: bool = False,
        dynamic_img_pad: bool = False,
        drop_rate: float = 0.0,
        pos_drop_rate: float = 0.0,
        patch_drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        weight_init: str = "",
        norm_layer: LayerType = None,
        norm_eps: float | None = None,
        act_layer: LayerType = None,
        mlp_layer: str | Callable[..., nn.Module] = "mlp",
        embed_layer: Callable[..., Any] = Patches,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        check_divides(img_size, patch_size, dynamic_img_pad)
        check_pool(global_pool, class_token)
        check_pos_embed(pos_embed)
        check_count("depth", depth)
        check_rates(drop_rate=drop_rate, pos_drop_rate=pos_drop_rate, patch_drop_rate=patch_drop_rate)
        check_rates(proj_drop_rate=proj_drop_rate, attn_drop_rate=attn_drop_rate, drop_path_rate=drop_path_rate)
        norm, act = norm_factory(norm_layer, norm_eps), act_factory(act_layer)

        self.num_classes = num_classes
        self.in_chans = in_chans
        self.global_pool = global_pool
        self.num_features = self.head_hidden_size = self.embed_dim = embed_dim
        self.num_prefix_tokens = int(class_token) + reg_tokens
        self.num_reg_tokens = reg_tokens
        self.has_class_token = class_token
        self.no_embed_class = no_embed_class
        self.pool_include_prefix = pool_include_prefix
        self.dynamic_img_size = dynamic_img_size
        self.pos_embed_type = pos_embed
        self.causal = causal
        self.grad_checkpointing = False
        self.weight_init_mode = "reset" if weight_init == "skip" else weight_init

        self.patch_embed = embed_layer(
            img_size=img_size,
            patch_size=patch_size,
            in_chans=in_chans,
            embed_dim=embed_dim,
            bias=not pre_norm,
            strict_img_size=not dynamic_img_size,
            dynamic_img_pad=dynamic_img_pad,
            output_fmt="NHWC",
            **factory,
        )
        grid = self.grid
        self.window = as_window(window, grid)
        self.cls_token = nn.Parameter(torch.empty(1, 1, embed_dim, **factory)) if class_token else None
        self.reg_token = nn.Parameter(torch.empty(1, reg_tokens, embed_dim, **factory)) if reg_tokens else None
        embed_rows = grid.num_patches if no_embed_class else grid.num_tokens
        learned = pos_embed == "learned"
        self.pos_embed = nn.Parameter(torch.empty(1, embed_rows, embed_dim, **factory)) if learned else None
        if pos_embed == "sincos":
            sincos_embedding(TokenGrid((1, 1)), embed_dim)  # refuse a width that does not split
        self.pos_drop = nn.Dropout(pos_drop_rate)
        drops = patch_drop_rate > 0
        self.patch_drop = PatchDropoutWithIndices(patch_drop_rate, self.num_prefix_tokens) if drops else None
        self.norm_pre = norm(embed_dim, **factory) if pre_norm else nn.Identity()

        once, layerwise = split_by_lifetime(
            rpe, grid, shared=rpe_shared, num_heads=num_heads, dim=embed_dim, attn_impl=attn_impl, logit_clip=logit_clip
        )
        self.rpe = create_encoding(once, num_heads, embed_dim // num_heads, grid, **factory) if once else None
        rates: Any = calculate_drop_path_rates(drop_path_rate, depth)
        with drawn_later(weight_init not in ("skip", "reset"), norm_layer, act_layer, mlp_layer):
            self.blocks = nn.ModuleList(
                Block(
                    embed_dim,
                    num_heads,
                    attention={
                        "rpe": layerwise,
                        "grid": grid,
                        "dropout": attn_drop_rate,
                        "qkv_bias": qkv_bias,
                        "qk_norm": qk_norm,
                        "scale_norm": scale_attn_norm,
                        "logit_clip": logit_clip,
                        "attn_impl": attn_impl,
                        "depth_index": index,
                        "depth": depth,
                    },
                    mlp_ratio=mlp_ratio,
                    init_values=init_values,
                    proj_drop=proj_drop_rate,
                    drop_path=rates[index],
                    proj_bias=proj_bias,
                    norm_layer=norm,
                    act_layer=act,
                    mlp_layer=mlp_factory(mlp_layer),
                    scale_mlp_norm=scale_mlp_norm,
                    **factory,
                )
                for index in range(depth)
            )
        reduction = self.patch_embed.feat_ratio()
        self.feature_info = [
            {"module": f"blocks.{index}", "num_chs": embed_dim, "reduction": reduction} for index in range(depth)
        ]
        build_head(
            self,
            global_pool,
            final_norm=final_norm,
            fc_norm=fc_norm,
            num_heads=num_heads,
            mlp_ratio=mlp_ratio,
            norm_layer=norm,
            act_layer=act,
            factory=factory,
        )
        self.head_drop = nn.Dropout(drop_rate)
        self.register_load_state_dict_pre_hook(before_load)
        if weight_init == "skip":
            draw_tokens(self)
        else:
            self.init_weights(needs_reset=False)

    @property
    def grid(self) -> TokenGrid:
        """The native token grid."""
        return TokenGrid(tuple(self.patch_embed.grid_size), num_prefix=self.num_prefix_tokens)

    def attentions(self) -> list[RelativeMultiheadAttention]:
        """The attention of every block, in order."""
        return [module for module in self.modules() if isinstance(module, RelativeMultiheadAttention)]

    def init_weights(self, mode: str = "", needs_reset: bool = True) -> None:
        """Draw all weights anew, as timm does; encodings by their own rules."""
        draw_weights(self, mode or self.weight_init_mode, needs_reset=needs_reset)

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay must leave alone: tokens, embeddings and what encodings name."""
        return {"pos_embed", "cls_token", "reg_token"} | undecayed(self)

    @torch.jit.ignore
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Parameter groups for layer decay: an encoding goes with its block, a shared one with the stem."""
        return {
            "stem": r"^cls_token|reg_token|pos_embed|patch_embed|norm_pre|^rpe",
            "blocks": [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))],
        }

    @torch.jit.ignore
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each block in backward instead of keeping its activations."""
        self.grad_checkpointing = enable

    @torch.jit.ignore
    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new head for ``num_classes`` (0: none), and optionally another pooling.

        Raises:
            ValueError: token pooling without a class token, or adding attention pooling.
        """
        reset_head(self, num_classes, global_pool)

    def set_input_size(
        self,
        img_size: int | tuple[int, int] | None = None,
        patch_size: int | tuple[int, int] | None = None,
    ) -> None:
        """Make another resolution the native one: embeddings and tables are resampled, parameters replaced.

        Create the optimiser afterwards.
        """
        check_divides(
            self.patch_embed.img_size if img_size is None else img_size,
            self.patch_embed.patch_size if patch_size is None else patch_size,
            self.patch_embed.dynamic_img_pad,
        )
        resize_model(self, img_size, patch_size)
        if self.rpe is not None:
            self.rpe = self.rpe.resized(self.grid)
        for attention in self.attentions():
            attention.set_grid(self.grid)

    def freeze(self) -> None:
        """Turn positions into constants of the native grid, for deployment."""
        freeze_positions(self, self.grid, self.patch_embed.proj.weight.device)

    def unfreeze(self) -> None:
        """Undo :meth:`freeze`."""
        unfreeze_positions(self)

    def embed(self, images: Tensor) -> tuple[Tensor, TokenGrid, Tensor | None]:
        """Tokens (B, N, C), the grid they lie on, and which tokens patch dropout kept (None: all)."""
        return embed_images(self, images)

    def shared_terms(self, grid: TokenGrid, keep: Tensor | None, attn_mask: Tensor | None, x: Tensor) -> PositionTerms:
        """What all layers share, computed once: shared encodings, window, causal order, the caller's mask."""
        terms = mask_terms(attn_mask, grid, causal=self.causal, window=self.window, batch=x.shape[0], device=x.device)
        if self.rpe is not None:
            terms = combine(once_for_all_layers(self.rpe(grid, grid, x.device)), terms)
        return terms if keep is None else terms.take(keep)

    def run_block(
        self, block: nn.Module, x: Tensor, grid: TokenGrid, shared: PositionTerms, keep: Tensor | None
    ) -> Tensor:
        """One block, recomputed in backward where gradient checkpointing is on."""
        if self.grad_checkpointing and self.training:
            return checkpoint(block, x, grid, shared, keep, use_reentrant=False)
        return block(x, grid, shared, keep)

    @sharing()
    def forward_features(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Images (B, in_chans, H, W) to tokens (B, N, C) after the last norm; ``attn_mask`` as in timm, bool (True =
        may see) or a float bias, broadcasting to (B, heads, N, N)."""
        x, grid, keep = self.embed(x)
        shared = self.shared_terms(grid, keep, attn_mask, x)
        for block in self.blocks:
            x = self.run_block(block, x, grid, shared, keep)
        return self.norm(x)

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        """Tokens (B, N, C) to one vector (B, C), or to themselves for ``""``."""
        return pool_tokens(self, x, pool_type)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool, normalise, classify; ``pre_logits`` stops before the classifier."""
        x = self.head_drop(self.fc_norm(self.pool(x)))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Images (B, in_chans, H, W) to logits (B, num_classes)."""
        return self.forward_head(self.forward_features(x, attn_mask=attn_mask))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | tuple[int, ...] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
        output_dict: bool = False,
        attn_mask: Tensor | None = None,
    ) -> Any:
        """Features after chosen blocks; options and results as in timm."""
        return collect_intermediates(
            self,
            x,
            indices,
            return_prefix_tokens=return_prefix_tokens,
            norm=norm,
            stop_early=stop_early,
            output_fmt=output_fmt,
            intermediates_only=intermediates_only,
            output_dict=output_dict,
            attn_mask=attn_mask,
        )

    def get_intermediate_layers(
        self,
        x: Tensor,
        n: int | list[int] | tuple[int, ...] = 1,
        reshape: bool = False,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        attn_mask: Tensor | None = None,
    ) -> list[Any]:
        """Features after the last ``n`` (or the listed) blocks, in the form DINO's tools expect."""
        return self.forward_intermediates(
            x,
            n,
            return_prefix_tokens=return_prefix_tokens,
            norm=norm,
            output_fmt="NCHW" if reshape else "NLC",
            intermediates_only=True,
            attn_mask=attn_mask,
        )

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the blocks behind the last one asked for; returns the indices that stay."""
        return prune_blocks(self, indices, prune_norm=prune_norm, prune_head=prune_head)
