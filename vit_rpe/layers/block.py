"""A transformer block whose attention knows relative position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from timm.layers import DropPath, LayerNorm, LayerScale, Mlp
from torch import Tensor, nn

from vit_rpe.checks import check_rates, checked
from vit_rpe.layers.attention import NormLayer, RelativeMultiheadAttention
from vit_rpe.layers.conditional import ConditionalPosition
from vit_rpe.layers.kv_cache import LayerCache
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms


class Block(nn.Module):
    """Pre-norm transformer block; names and order of operations as in timm's ``Block``.

    Args:
        dim, num_heads: C and H.
        attention: further arguments of :class:`RelativeMultiheadAttention`.
        mlp_ratio: hidden width of the MLP over C.
        init_values: initial LayerScale; None for none.
        proj_drop, drop_path: dropout after projections, stochastic depth.
        norm_layer, act_layer, mlp_layer: factories, timm's by default.
        scale_mlp_norm: a norm inside the MLP.
        conditional: number of axes of a :class:`ConditionalPosition` behind all this; None for none.
    """

    @checked(least={"dim": 1, "num_heads": 1, "conditional": 1}, positive=("mlp_ratio",))
    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        attention: dict[str, Any] | None = None,
        mlp_ratio: float = 4.0,
        init_values: float | None = None,
        proj_drop: float = 0.0,
        drop_path: float = 0.0,
        proj_bias: bool = True,
        norm_layer: NormLayer = LayerNorm,
        act_layer: Callable[..., nn.Module] = nn.GELU,
        mlp_layer: Callable[..., nn.Module] = Mlp,
        scale_mlp_norm: bool = False,
        conditional: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_rates(drop_path=drop_path)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.norm1 = norm_layer(dim, **factory)
        self.attn = RelativeMultiheadAttention(
            dim,
            num_heads,
            proj_drop=proj_drop,
            proj_bias=proj_bias,
            norm_layer=norm_layer,
            **(attention or {}),
            **factory,
        )
        self.ls1 = LayerScale(dim, init_values=init_values, **factory) if init_values else nn.Identity()
        self.drop_path1 = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        self.norm2 = norm_layer(dim, **factory)
        self.mlp = mlp_layer(
            in_features=dim,
            hidden_features=int(dim * mlp_ratio),
            act_layer=act_layer,
            norm_layer=norm_layer if scale_mlp_norm else None,
            bias=proj_bias,
            drop=proj_drop,
            **factory,
        )
        self.ls2 = LayerScale(dim, init_values=init_values, **factory) if init_values else nn.Identity()
        self.drop_path2 = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        self.conditional = None if conditional is None else ConditionalPosition(dim, conditional, **factory)

    def forward(
        self,
        x: Tensor,
        grid: TokenGrid | None = None,
        shared: PositionTerms | None = None,
        keep: Tensor | None = None,
        key_visible: Tensor | None = None,
        *,
        context_grid: TokenGrid | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Args as in :meth:`RelativeMultiheadAttention.forward`; returns (B, N, C)."""
        attended = self.attn(
            self.norm1(x),
            grid,
            context_grid=context_grid,
            shared=shared,
            keep=keep,
            key_visible=key_visible,
            cache=cache,
        )
        x = x + self.drop_path1(self.ls1(attended))
        x = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
        if self.conditional is None:
            return x
        if grid is None:
            raise ValueError("a block with conditional position needs to know where the tokens lie: pass grid")
        return self.conditional(x, grid, keep, key_visible)
