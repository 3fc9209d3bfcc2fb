"""A vision transformer whose attention knows relative position.

Parameter names, options and methods are those of timm's ``VisionTransformer``, so that its weights and tools fit; what
is new is ``rpe`` and what belongs to it.

Legend: B batch, P patches, N = prefix + P tokens, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from timm.layers import PatchDropoutWithIndices
from torch import Tensor, nn

from vit_rpe.checks import check_rates, checked
from vit_rpe.encodings import Spec, check_resizable
from vit_rpe.layers import RelativeMultiheadAttention
from vit_rpe.layers.absolute import check_pos_embed
from vit_rpe.layers.options import as_window
from vit_rpe.models.backbone.blocks import build_blocks, run_block
from vit_rpe.models.backbone.factories import LayerType, act_factory, by_name, mlp_factory, norm_factory
from vit_rpe.models.backbone.freeze import freeze_positions, unfreeze_positions
from vit_rpe.models.backbone.init_weights import defer_linear_init, init_encodings, init_layers, init_tokens, undecayed
from vit_rpe.models.backbone.loading import resample_on_load, resized_embedding
from vit_rpe.models.backbone.position import RebuildArguments, shared_terms
from vit_rpe.models.backbone.resizing import resize_positions
from vit_rpe.models.vision.checks import COUNTS, check_divides, check_pool
from vit_rpe.models.vision.embed import absolute_embedding, drop_patches, embed_tokens, token_grid, token_parameters
from vit_rpe.models.vision.head import build_pooling, classifier, other_pool, pool_tokens
from vit_rpe.models.vision.intermediates import Indices, arrange_features, blocks_info, blocks_to_take
from vit_rpe.models.vision.patches import EMBEDS
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import sharing
from vit_rpe.precision import placement_of

# what depends on sizes and positions is no graph of tensors: any FX tracer takes these as single steps
for _step in ("absolute_embedding", "drop_patches", "shared_terms", "token_grid"):
    torch.fx.wrap(_step)


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
        pos_embed: beside it, ``"none"``, ``"learned"``, ``"sincos"`` or ``"conditional"`` (behind the first block).
        window: local attention, patches up to this many steps away along each axis; an int or (height, width).
        causal: a patch sees the patches before it in raster order.
        attn_impl: ``"auto"`` or an attention kernel by name.
        logit_clip: soft cap on attention logits, a debugging aid.
        class_token, reg_tokens, no_embed_class: prefix tokens, and whether ``pos_embed`` leaves them out.
        qkv_bias, proj_bias, qk_norm, scale_attn_norm, scale_mlp_norm, init_values: of the blocks, as in timm.
        pre_norm, final_norm, fc_norm: norms around the blocks, as in timm.
        pool_include_prefix: average over prefix tokens too.
        head_mlp_ratio: a classifier of two layers with tanh between, of this width over C; None = one layer.
        dynamic_img_size, dynamic_img_pad: accept any size per forward; pad to whole patches.
        drop_rate, pos_drop_rate, patch_drop_rate, proj_drop_rate, attn_drop_rate, drop_path_rate: regularisation.
        weight_init: as in timm, ``""``, ``"jax"``, ``"jax_nlhb"``, ``"moco"``, ``"reset"`` or ``"skip"``.
        norm_layer, act_layer, mlp_layer, embed_layer: factories or names (``mlp_layer``: ``"mlp"``, ``"swiglu"``,
            ``"swiglu_packed"``, ``embed_layer``: ``"patch"``, ``"conv"``); norm_eps: of every norm, None for the
            layer's own.

    Raises:
        ValueError: sizes that do not divide, unknown names, token pooling without a class token.
    """

    _model_args = RebuildArguments()

    @checked(least={"num_classes": 0, "reg_tokens": 0, **COUNTS}, positive=("mlp_ratio", "norm_eps", "head_mlp_ratio"))
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
        pos_embed: Literal["none", "learned", "sincos", "conditional"] = "none",
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
        head_mlp_ratio: float | None = None,
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
        embed_layer: str | Callable[..., Any] = "patch",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        check_divides(img_size, patch_size, dynamic_img_pad)
        check_pool(global_pool, class_token)
        check_pos_embed(pos_embed, causal=causal)
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

        self.patch_embed = by_name("embed_layer", embed_layer, EMBEDS)(
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
        self.cls_token, self.reg_token, self.pos_embed = token_parameters(
            embed_dim,
            class_token,
            reg_tokens,
            pos_embed,
            grid.num_patches if no_embed_class else grid.num_tokens,
            factory,
        )
        self.pos_drop = nn.Dropout(pos_drop_rate)
        self.patch_drop = PatchDropoutWithIndices(patch_drop_rate, self.num_prefix_tokens) if patch_drop_rate else None
        self.norm_pre = norm(embed_dim, **factory) if pre_norm else nn.Identity()

        attention: dict[str, Any] = {"qkv_bias": qkv_bias, "qk_norm": qk_norm, "scale_norm": scale_attn_norm}
        attention |= {"dropout": attn_drop_rate, "logit_clip": logit_clip, "attn_impl": attn_impl}
        layers: dict[str, Any] = {"mlp_ratio": mlp_ratio, "init_values": init_values, "scale_mlp_norm": scale_mlp_norm}
        layers |= {"norm_layer": norm, "act_layer": act, "mlp_layer": mlp_factory(mlp_layer)}
        layers |= {"proj_bias": proj_bias, "proj_drop": proj_drop_rate}
        self.rpe, self.blocks = build_blocks(
            depth,
            embed_dim,
            num_heads,
            grid,
            rpe=rpe,
            rpe_shared=rpe_shared,
            drop_path_rate=drop_path_rate,
            drops_patches=patch_drop_rate > 0,
            conditional=pos_embed == "conditional",
            attention=attention,
            block=layers,
            factory=factory,
            deferring=defer_linear_init(weight_init not in ("skip", "reset"), norm_layer, act_layer, mlp_layer),
        )
        self.feature_info = blocks_info(depth, embed_dim, self.patch_embed.feat_ratio())
        pooling = {"num_heads": num_heads, "mlp_ratio": mlp_ratio, "act_layer": act}
        self.norm, self.attn_pool, self.fc_norm = build_pooling(
            norm, embed_dim, global_pool, final_norm=final_norm, fc_norm=fc_norm, attention=pooling, factory=factory
        )
        self.head_mlp_ratio = head_mlp_ratio
        self.head = classifier(embed_dim, num_classes, head_mlp_ratio, **factory)
        self.head_drop = nn.Dropout(drop_rate)
        resample_on_load(self)
        if weight_init == "skip":
            init_tokens(self.pos_embed, self.cls_token, self.reg_token)
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
        init_tokens(self.pos_embed, self.cls_token, self.reg_token)
        init_layers(self, mode or self.weight_init_mode, num_classes=self.num_classes, needs_reset=needs_reset)
        init_encodings(self)

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

    @checked(least={"num_classes": 0})
    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new head for ``num_classes`` (0: none), and optionally another pooling.

        Raises:
            ValueError: token pooling without a class token, adding attention pooling, or no number of classes.
        """
        if global_pool is not None:
            self.attn_pool = other_pool(global_pool, self.attn_pool, self.has_class_token)
            self.global_pool = global_pool
            self._remember(fc_norm=not isinstance(self.fc_norm, nn.Identity))
        self.num_classes = num_classes
        device, dtype = placement_of(self.patch_embed)
        self.head = classifier(self.embed_dim, num_classes, self.head_mlp_ratio, device=device, dtype=dtype)
        self.head.train(self.training)

    @checked()
    def set_input_size(
        self,
        img_size: int | tuple[int, int] | None = None,
        patch_size: int | tuple[int, int] | None = None,
    ) -> None:
        """Make another resolution the native one: embeddings and tables are resampled, parameters replaced (create the
        optimiser afterwards)."""
        check_divides(
            self.patch_embed.img_size if img_size is None else img_size,
            self.patch_embed.patch_size if patch_size is None else patch_size,
            self.patch_embed.dynamic_img_pad,
        )
        check_resizable(self)
        before = self.grid.size
        self.patch_embed.set_input_size(img_size=img_size, patch_size=patch_size)
        size = tuple(self.patch_embed.img_size)
        self._remember(img_size=size, **({} if patch_size is None else {"patch_size": patch_size}))
        self._traits = {**getattr(self, "_traits", {}), "img_size": size}  # for timm's data configuration
        if self.pos_embed is not None:
            self.pos_embed = resized_embedding(self.pos_embed, before, self.grid.size)
        resize_positions(self, self.grid)

    def _remember(self, **changed: Any) -> None:
        """Arguments that no longer have the value the model was built with, for timm to build it again."""
        self._model_args = {**getattr(self, "_model_args", {}), **changed}

    def freeze(self) -> None:
        """Turn positions into constants of the native grid, for deployment."""
        freeze_positions(self, self.grid, placement_of(self).device)

    def unfreeze(self) -> None:
        """Undo :meth:`freeze`."""
        unfreeze_positions(self)

    def embed(self, images: Tensor) -> tuple[Tensor, TokenGrid, Tensor | None]:
        """Tokens (B, N, C), the grid they lie on, and which of its tokens patch dropout kept, int64 (B, M), or None."""
        x = self.patch_embed(images)
        # without dynamic_img_size the patch embedding refuses any other size: constants, also for tracers
        native = self.grid
        grid = token_grid(x, native.num_prefix) if self.dynamic_img_size else native
        x = x.flatten(1, 2)
        kind = self.pos_embed_type
        adds = kind in ("learned", "sincos")
        position = absolute_embedding(kind, self.pos_embed, native.size, grid, x) if adds else None
        of_patches = self.no_embed_class or self.pos_embed is None
        x = self.pos_drop(embed_tokens(x, (self.cls_token, self.reg_token), position, of_patches=of_patches))
        x, keep = (x, None) if self.patch_drop is None else drop_patches(self.patch_drop, x, native.num_prefix)
        return self.norm_pre(x), grid, keep

    @sharing()
    def forward_features(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Images (B, in_chans, H, W) to tokens (B, N, C) after the last norm; ``attn_mask`` as in timm, bool (True =
        may see) or a float bias, broadcasting to (B, heads, N, N)."""
        x, grid, keep = self.embed(x)
        shared = shared_terms(self.rpe, grid, keep, attn_mask, x, causal=self.causal, window=self.window)
        for block in self.blocks:
            x = run_block(block, x, grid, shared, keep, recompute=self.grad_checkpointing and self.training)
        return self.norm(x)

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        """Tokens (B, N, C) to one vector (B, C), or to themselves for ``""``."""
        kind = self.global_pool if pool_type is None else pool_type
        return pool_tokens(x, kind, self.attn_pool, self.num_prefix_tokens, self.pool_include_prefix)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool, normalise, classify; ``pre_logits`` stops before the classifier."""
        x = self.head_drop(self.fc_norm(self.pool(x)))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Images (B, in_chans, H, W) to logits (B, num_classes)."""
        return self.forward_head(self.forward_features(x, attn_mask=attn_mask))

    @sharing()
    def forward_intermediates(
        self,
        x: Tensor,
        indices: Indices = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
        output_dict: bool = False,
        attn_mask: Tensor | None = None,
    ) -> Any:
        """Features after chosen blocks; options and results as in timm.

        Raises:
            ValueError: another ``output_fmt``, or maps asked for while patch dropout removes tokens.
        """
        take, last = blocks_to_take(len(self.blocks), indices, output_fmt)
        x, grid, keep = self.embed(x)
        if keep is not None and output_fmt == "NCHW":
            raise ValueError("patch dropout is active and leaves no full feature map: use eval() or output_fmt='NLC'")
        shared = shared_terms(self.rpe, grid, keep, attn_mask, x, causal=self.causal, window=self.window)
        found = []
        for index, block in enumerate(self.blocks[: last + 1] if stop_early else self.blocks):
            x = run_block(block, x, grid, shared, keep, recompute=self.grad_checkpointing and self.training)
            if index in take:
                found.append(self.norm(x) if norm else x)
        final = None if intermediates_only else self.norm(x)
        return arrange_features(found, final, grid, return_prefix_tokens, output_fmt, output_dict)

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
        take, last = blocks_to_take(len(self.blocks), indices)
        self.blocks = self.blocks[: last + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.fc_norm = nn.Identity()
            self.reset_classifier(0, "")
        return take
