"""Attention and transformer block with relative position: what people put into their own models.

Parameter names are those of timm's ``VisionTransformer`` blocks, with the encoding under ``attn.rpe``.

Legend: B batch, H heads, D head width, C = H D channels, Nq/Nk query/key tokens with prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from timm.layers import LayerNorm
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position, combine_later
from vit_rpe.checks import check_rates, checked
from vit_rpe.encodings import Spec, create_encoding, parse_specs, terms_of_tokens
from vit_rpe.layers._interface import AttentionLayer
from vit_rpe.layers.kv_cache import LayerCache
from vit_rpe.layers.options import (
    GridLike,
    Window,
    as_grid,
    as_window,
    check_attention,
    check_length,
    describe_position,
    scatter_tokens,
)
from vit_rpe.position.geometry import Device, TokenGrid, check_same_axes
from vit_rpe.position.masks import as_batch_head, geometric_mask, intersect, padding
from vit_rpe.position.terms import NOTHING, PositionTerms, combine
from vit_rpe.precision import is_bare

NormLayer = Callable[..., nn.Module]
torch.fx.wrap("compute_attention")  # sizes and positions are no graph of tensors: any FX tracer takes it as one step


def compute_attention(
    layer: RelativeMultiheadAttention, need_weights: bool, *args: Any, **options: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """The output of a layer, and the weights if asked for; arguments of :meth:`RelativeMultiheadAttention.forward`."""
    call = layer.attention_call(*args, **options)
    if need_weights:
        call = call._replace(position=call.terms)  # used twice
    out = call.finish(call.attend(layer.attn_impl))
    return (out, call.weights()) if need_weights else out


class RelativeMultiheadAttention(AttentionLayer):
    """Multi-head self- or cross-attention with relative position, over sequences, images or video.

    Args:
        dim: C.
        num_heads: H.
        rpe: None or ``"none"``, the name of an encoding, a mapping with its options, or a list of those.
        grid: the native grid the encoding's parameters are made for; a size such as ``(14, 14)`` will do.
        causal: a query sees keys at or before it (raster order).
        window: a query sees keys within this many steps along every axis; an int or one per axis.
        dropout: probability of dropping an attention weight, in training only.
        proj_drop: dropout after the output projection.
        qkv_bias, proj_bias: biases of the projections.
        qk_norm: normalise each head's q and k (before rotation and relative vectors).
        norm_layer: for ``qk_norm`` and ``scale_norm``.
        scale_norm: normalise the output of attention before its projection.
        logit_clip: soft cap c on the logits, c tanh(logit / c); a debugging aid, computed unfused.
        attn_impl: ``"auto"`` or a kernel by name.
        depth_index, depth: which layer of how many, for encodings that differ by layer.

    Raises:
        ValueError: ``dim`` not divisible by ``num_heads``, an unknown encoding, option or kernel, ``rpe`` without
            grid, a value of another type or out of its range, a kernel that cannot compute the encoding.
    """

    @checked(least={"dim": 1, "num_heads": 1, "depth": 1, "depth_index": 0}, positive=("logit_clip",))
    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        rpe: Spec | Sequence[Spec] | None = None,
        grid: GridLike = None,
        causal: bool = False,
        window: Window = None,
        dropout: float = 0.0,
        proj_drop: float = 0.0,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        qk_norm: bool = False,
        scale_norm: bool = False,
        norm_layer: NormLayer = LayerNorm,
        logit_clip: float | None = None,
        attn_impl: str = "auto",
        depth_index: int | None = None,
        depth: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_rates(dropout=dropout, proj_drop=proj_drop)
        if dim % num_heads != 0:
            raise ValueError(f"dim must be divisible by num_heads, got dim={dim} and num_heads={num_heads}")
        specs = parse_specs(rpe)
        if specs and grid is None:
            raise ValueError(f"rpe={rpe!r} needs the native grid: pass grid=(height, width) or a TokenGrid")
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.scale = self.head_dim**-0.5
        self.grid = native = as_grid(grid)
        self.causal = causal
        self.window = as_window(window, native)
        self.logit_clip = logit_clip
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias, **factory)
        self.q_norm = norm_layer(self.head_dim, **factory) if qk_norm else nn.Identity()
        self.k_norm = norm_layer(self.head_dim, **factory) if qk_norm else nn.Identity()
        self.attn_drop = nn.Dropout(dropout)
        self.norm = norm_layer(dim, **factory) if scale_norm else nn.Identity()
        self.proj = nn.Linear(dim, dim, bias=proj_bias, **factory)
        self.proj_drop = nn.Dropout(proj_drop)
        self.rpe = (
            create_encoding(specs, num_heads, self.head_dim, native, depth_index=depth_index, depth=depth, **factory)
            if specs and native is not None
            else None
        )
        # inside a model the terms of other encodings may come to its own: there the model asks for all of them
        judged = self.rpe if depth is None else None
        self.attn_impl = check_attention(attn_impl, judged, native, logit_clip=logit_clip, device=device)

    def forward(
        self,
        x: Tensor,
        grid: GridLike = None,
        *,
        context: Tensor | None = None,
        context_grid: GridLike = None,
        shared: PositionTerms | None = None,
        keep: Tensor | None = None,
        visible: Tensor | None = None,
        key_visible: Tensor | None = None,
        cache: LayerCache | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from ``x`` to itself, or to ``context``.

        Args:
            x: (B, Nq, C).
            grid: where the tokens of ``x`` lie, a grid or its size; default: the native grid.
            context: (B, Nk, C) for cross-attention.
            context_grid: where the tokens of ``context`` (or of the cache and ``x``) lie; default: the grid of ``x``.
            shared: terms that a model computed once for all layers, combined with this layer's own.
            keep: int64 (B, M) when ``x`` holds only these tokens of ``grid`` (patch dropout); self-attention only.
            visible: bool (B, Nq, Nk) or (B, H, Nq, Nk), True = may see.
            key_visible: bool (B, Nk), False for padding.
            cache: keys and values of earlier tokens; those of ``x`` are appended, and ``context_grid`` holds them all.
            need_weights: also return the exact attention weights, before dropout.

        Returns:
            (B, Nq, C), or a pair of it and the weights (B, H, Nq, Nk).

        Raises:
            ValueError: a sequence that does not fit its grid, grids of different axes, a context of another batch size,
                a mask of another shape.
        """
        return compute_attention(
            self,
            need_weights,
            x,
            grid,
            context=context,
            context_grid=context_grid,
            shared=shared,
            keep=keep,
            visible=visible,
            key_visible=key_visible,
            cache=cache,
        )

    def attention_call(
        self,
        x: Tensor,
        grid: GridLike = None,
        *,
        context: Tensor | None = None,
        context_grid: GridLike = None,
        shared: PositionTerms | None = None,
        keep: Tensor | None = None,
        visible: Tensor | None = None,
        key_visible: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> AttentionCall:
        """What :meth:`forward` is going to apply; arguments and errors as there. A ``cache`` is extended."""
        source = x if context is None else context
        if context is not None and keep is not None:
            raise ValueError("keep says which tokens of x there are, for self-attention: leave context out")
        if source.shape[0] != x.shape[0]:
            raise ValueError(f"x and context must have the same batch, got {x.shape[0]} and {source.shape[0]} samples")
        if cache is not None and (context is not None or context_grid is None or keep is not None):
            raise ValueError("cache is for self-attention with context_grid, and without keep")
        q_grid, k_grid = self._grids(grid, context_grid)
        cached = 0 if cache is None else cache.length
        if q_grid is not None and k_grid is not None and keep is None:
            check_length("x", x.shape[1], q_grid)
            if k_grid is not q_grid or source is not x or cached > 0:
                check_length("context" if source is not x else "x", cached + source.shape[1], k_grid)
        masks = None if shared is None else shared.visible
        x_k = source if cached == 0 else None
        position = self._position(q_grid, k_grid, shared, keep, x, x_k)
        own = self._mask(q_grid, k_grid)
        if keep is None:
            position = combine_later(own, position)
        else:
            masks = intersect(masks, own.take(keep).visible)
        q, k, v = self.project(x, context)
        if cache is not None:
            k, v = cache.extend(k, v)
        if visible is not None or key_visible is not None:
            masks = intersect(self._visible(visible, key_visible, q, k), masks)
        return AttentionCall(
            q,
            k,
            v,
            position,
            None if masks is None else masks[(None,) * (4 - masks.ndim)],
            self.scale,
            self._finish,
            self.logit_clip,
            self.attn_drop.p if self.training else 0.0,
            q_grid if keep is None else None,
            k_grid if keep is None else None,
        )

    def set_grid(self, grid: TokenGrid, tied: dict[int, nn.Parameter] | None = None) -> None:
        """Make another grid the native one; the encoding's tables are resampled. For ``tied`` see
        :meth:`PositionEncoding.resized`."""
        if self.rpe is not None:
            self.rpe = self.rpe.resized(grid, tied)
        self.grid = grid

    def _grids(self, grid: GridLike, context_grid: GridLike) -> tuple[TokenGrid | None, TokenGrid | None]:
        """Where queries and keys lie."""
        q = as_grid(grid) or self.grid
        k = as_grid(context_grid) or q
        for place in (q,) if k is q else (q, k):
            if self.grid is not None and place is not None and place.ndim != self.grid.ndim:
                raise ValueError(
                    f"the native grid is {self.grid.size}, got tokens on a grid of {place.ndim} axes: {place.size}"
                )
        if k is not q and q is not None and k is not None:
            check_same_axes(q, k)
        return q, k

    def _mask(self, q: TokenGrid | None, k: TokenGrid | None) -> PositionTerms:
        """Causal order and window, as terms."""
        mask = geometric_mask(is_causal=self.causal, window=self.window)
        if mask is None:
            return NOTHING
        if q is None or k is None:
            raise ValueError("causal and window need to know where the tokens lie: pass grid")
        return PositionTerms(geometric_mask=mask, grids=(q, k))

    def _position(
        self,
        q: TokenGrid | None,
        k: TokenGrid | None,
        shared: PositionTerms | None,
        keep: Tensor | None,
        x: Tensor,
        x_k: Tensor | None,
    ) -> Position:
        """This layer's encoding together with the shared terms, all without masks that are tensors."""
        if shared is not None and shared.visible is not None:
            shared = shared._replace(visible=None)
        if self.rpe is None or q is None or k is None:
            return NOTHING if shared is None else shared
        if keep is not None:
            whole = scatter_tokens(x, keep, q.num_tokens) if self.rpe.card.content else None
            kept = terms_of_tokens(self.rpe, q, k, x.device, x=whole, x_k=whole).take(keep)
            return kept if shared is None else combine(shared, kept)
        own = describe_position(self.rpe, q, k, x.device, x=x, x_k=x_k)
        return own if shared is None else combine_later(shared, own)

    def _finish(self, attended: Tensor) -> Tensor:
        """Attended values (B, H, N, D) to the output (B, N, C)."""
        return self.proj_drop(self.proj(self.norm(attended.transpose(1, 2).flatten(2))))

    def project(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, Nq, D) and k, v (B, H, Nk, D), q and k normalised."""
        if context is None:
            # views, not einops: a few percent of a small layer are spent outside its products. And taken apart before
            # the heads are moved, so that backward joins the gradients in the order the projection has them.
            qkv = self.qkv(x).reshape(*x.shape[:2], 3, self.num_heads, self.head_dim)
            q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        else:
            of_x, of_context = self._packed(x, context)
            q = rearrange(of_x, "b n (h d) -> b h n d", h=self.num_heads)
            k, v = rearrange(of_context, "b n (two h d) -> two b h n d", two=2, h=self.num_heads).unbind(0)
        return self.q_norm(q), self.k_norm(k), v

    def _packed(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """q of ``x`` (B, Nq, C), and k and v of ``context`` (B, Nk, 2 C).

        A wrapped layer is called on both, and makes parts that nobody needs: twice the products.
        """
        width = self.num_heads * self.head_dim
        if not is_bare(self.qkv):
            return self.qkv(x)[..., :width], self.qkv(context)[..., width:]
        weight, bias = self.qkv.weight, self.qkv.bias
        q, kv = (None, None) if bias is None else (bias[:width], bias[width:])
        return F.linear(x, weight[:width], q), F.linear(context, weight[width:], kv)

    def _visible(self, visible: Tensor | None, key_visible: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        if visible is not None:
            visible = as_batch_head(visible, q.shape[0], self.num_heads, queries=q.shape[2], keys=k.shape[2])
        if key_visible is not None and key_visible.shape != (q.shape[0], k.shape[2]):
            raise ValueError(
                f"key_visible must be (batch, keys) = {(q.shape[0], k.shape[2])}, got {tuple(key_visible.shape)}"
            )
        return intersect(visible, None if key_visible is None else padding(key_visible))
