"""Grids, encodings and inputs for the contract: small, never square, all lengths different."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.oracles import ORACLES
from vit_rpe.attention import attend
from vit_rpe.encodings import PositionEncoding, create_encoding, encoding_class, list_encodings, terms_of_tokens
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import PositionTerms

HEADS, HEAD_DIM = 3, 48
SCALE = HEAD_DIM**-0.5
NATIVE = {1: (5,), 2: (2, 3), 3: (2, 3, 4)}


def axes_of(name: str) -> tuple[int, ...]:
    return encoding_class(name).card.axes


def names_and_axes() -> list[tuple[str, int]]:
    return [(name, axes) for name in list_encodings() for axes in axes_of(name)]


def native_grid(axes: int, prefix: int = 0) -> TokenGrid:
    return TokenGrid(NATIVE[axes], num_prefix=prefix)


def grid_pairs(axes: int, prefix: int = 0) -> dict[str, tuple[TokenGrid, TokenGrid]]:
    """Query and key grids by situation, for a table made for the native grid."""
    native = native_grid(axes, prefix)
    ones = (1,) * axes
    window = TokenGrid((1,) * (axes - 1) + (2,), prefix, origin=ones, extent=native.size)
    last = TokenGrid(ones, 0, origin=tuple(size - 1 for size in native.size), extent=native.size)
    bigger = TokenGrid({1: (8,), 2: (4, 5), 3: (1, 5, 2)}[axes], prefix)
    pooled = TokenGrid(tuple((size + 1) // 2 for size in native.size), prefix, stride=(2,) * axes, extent=native.size)
    other = TokenGrid({1: (3,), 2: (3, 1), 3: (3, 1, 2)}[axes], prefix)
    return {
        "native": (native, native),
        "window": (window, native),
        "decode": (last, native),
        "bigger": (bigger, bigger),
        "cross": (other, native),
        "pooled_keys": (native, pooled),
        "pooled": (pooled, pooled),
        "pooled_without_extent": (replace(pooled, extent=None), native),
    }


def variants(name: str) -> list[dict[str, Any]]:
    """All option sets that the oracle file names, the default first, without repetition."""
    found: list[dict[str, Any]] = [{}]
    for changes in ORACLES[name].CHANGES.values():
        for change in changes:
            for options in change if isinstance(change, tuple) else (change,):
                if options not in found:
                    found.append(options)
    return found


def build(
    name: str,
    native: TokenGrid,
    options: dict[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.float64,
    seed: int | None = 1,
) -> PositionEncoding:
    """An encoding in eval mode with large, distinct parameters (``seed=None``: its own initialisation).

    Learned prefix values are refused on a grid without prefix tokens, and left out there.
    """
    kept = {key: value for key, value in (options or {}).items() if key != "prefix" or native.num_prefix > 0}
    encoding = create_encoding({"name": name, **kept}, HEADS, HEAD_DIM, native, dtype=dtype).eval()
    if seed is not None:
        draw(encoding, seed)
    return encoding


@torch.no_grad()
def draw(encoding: PositionEncoding, seed: int) -> None:
    """Large, distinct parameters: standard normal, matrices of a network by their fan-in, or as the oracle says."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in encoding.named_parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if name.endswith("weight"):
            values = values / parameter.shape[-1] ** 0.5
        parameter.copy_(values)
    own = getattr(ORACLES[encoding.name], "draw", None)
    if own is not None:
        own(encoding, generator)


def refuses(
    name: str,
    options: dict[str, Any],
    native: TokenGrid,
    q: TokenGrid | None = None,
    k: TokenGrid | None = None,
) -> bool:
    """Whether the oracle file says that this must raise ValueError."""
    judge = getattr(ORACLES[name], "refuses", None)
    return judge is not None and judge(options, native, q or native, k or native)


def inputs(
    q: TokenGrid, k: TokenGrid, *, batch: int = 2, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k, v that require gradients; the values are wide as the head."""
    shapes = [(batch, HEADS, n, HEAD_DIM) for n in (q.num_tokens, k.num_tokens, k.num_tokens)]
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)  # type: ignore[return-value]


def output(
    encoding: PositionEncoding, q: TokenGrid, k: TokenGrid, tensors: tuple[Tensor, ...], **options: Any
) -> Tensor:
    """The attention output with this encoding, (B, H, Nq, D)."""
    return attend(*tensors, terms(encoding, q, k, tensors), scale=SCALE, **options)


def learned(encoding: PositionEncoding) -> list[Tensor]:
    """The parameters that training changes."""
    return [parameter for parameter in encoding.parameters() if parameter.requires_grad]


def terms(encoding: PositionEncoding, q: TokenGrid, k: TokenGrid, tensors: tuple[Tensor, ...]) -> PositionTerms:
    """The terms; an encoding that reads content finds the heads of q and k side by side, (B, N, C)."""
    x, x_k = (tensor.transpose(1, 2).flatten(2) for tensor in tensors[:2])
    return terms_of_tokens(encoding, q, k, tensors[0].device, x=x, x_k=x_k)


def window_of(grid: TokenGrid, offset: tuple[int, ...], size: tuple[int, ...], prefix: int) -> TokenGrid:
    return replace(grid, size=size, origin=offset, extent=grid.size, num_prefix=prefix)
