"""Boolean masks. All are named *visible*: True means this query may see this key.

Legend: B batch, H heads, Nq/Nk query/key tokens (prefix first), n axes.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from vit_rpe.checks import check_type
from vit_rpe.position.geometry import Device, TokenGrid, are_constants, check_same_axes, expand_axis
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.prefix import pad_prefix, pad_prefix_with


def causal(q: TokenGrid, k: TokenGrid, device: Device = None) -> Tensor:
    """Keys at or before the query in raster order, bool (Nq, Nk).

    Built from coordinates, so it is right for a query grid with an offset (decoding) and for Nq != Nk. Every query
    sees the prefix; a prefix query sees the prefix only.
    """
    check_same_axes(q, k)
    earlier = torch.zeros((), dtype=torch.bool, device=device)
    tied = torch.ones((), dtype=torch.bool, device=device)
    for axis in range(q.ndim):
        delta = q.axis_positions(axis, device)[:, None] - k.axis_positions(axis, device)[None, :]
        earlier = earlier | (tied & expand_axis(delta > 0, axis, q, k))
        tied = tied & expand_axis(delta == 0, axis, q, k)
    visible = (earlier | tied).reshape(q.num_patches, k.num_patches)
    return pad_prefix_with(visible, q, k, to_patch=False, to_prefix=True, between=True)


def check_radius(radius: int | tuple[int, ...], grid: TokenGrid | None = None) -> None:
    """Raise ValueError unless ``radius`` is an integer >= 0, or one per axis (of ``grid``, where it is known)."""
    check_type("window", radius, int | tuple[int, ...])
    radii = (radius,) if isinstance(radius, int) else radius
    one_each = isinstance(radius, int) or grid is None or len(radii) == grid.ndim
    if min(radii, default=-1) < 0 or not one_each:
        of_grid = "" if grid is None else f" of the grid {grid.size}"
        raise ValueError(f"window={radius!r} must be one radius >= 0, or one per axis{of_grid}")


def neighbourhood(q: TokenGrid, k: TokenGrid, radius: int | tuple[int, ...], device: Device = None) -> Tensor:
    """Keys whose offset is at most ``radius`` along every axis, bool (Nq, Nk); the window is cut at the border.

    Prefix tokens see all and are seen by all.

    Raises:
        ValueError: a radius that is negative or no integer, or not one radius per axis.
    """
    check_same_axes(q, k)
    check_radius(radius, q)
    radii = (radius,) * q.ndim if isinstance(radius, int) else radius
    visible = torch.ones((), dtype=torch.bool, device=device)
    for axis in range(q.ndim):
        delta = q.axis_positions(axis, device)[:, None] - k.axis_positions(axis, device)[None, :]
        visible = visible & expand_axis(delta.abs() <= radii[axis], axis, q, k)
    visible = visible.reshape(q.num_patches, k.num_patches)
    return pad_prefix(visible, q, k, value=True)


def sliding_window(q: TokenGrid, k: TokenGrid, radius: int, device: Device = None) -> Tensor:
    """The 1-D neighbourhood, bool (Nq, Nk): keys within ``radius`` positions on either side.

    Raises:
        ValueError: the grids have more than one axis (use :func:`neighbourhood`).
    """
    if q.ndim != 1:
        raise ValueError(f"sliding_window is for 1-D sequences, got a grid of size {q.size}: use neighbourhood")
    return neighbourhood(q, k, radius, device)


def unmask_empty_rows(visible: Tensor) -> tuple[Tensor, Tensor]:
    """Show every key to queries that see none, because kernels differ on what they make of such a row.

    Returns:
        The mask, and which rows were empty, (..., Nq, 1): what attention gives for them is to be zeroed afterwards.
    """
    empty = ~visible.any(-1, keepdim=True)
    return visible | empty, empty


def padding(key_visible: Tensor) -> Tensor:
    """Key padding (B, Nk) -> bool (B, 1, 1, Nk), the same for every head and query.

    Raises:
        ValueError: not a 2-D boolean tensor.
    """
    if key_visible.ndim != 2 or key_visible.dtype != torch.bool:
        raise ValueError(
            f"key_visible must be a boolean (batch, keys) tensor, got {key_visible.dtype} {tuple(key_visible.shape)}"
        )
    return key_visible[:, None, None, :]


def as_batch_head(
    visible: Tensor, batch: int, num_heads: int, *, queries: int | None = None, keys: int | None = None
) -> Tensor:
    """Bring a user's mask to four axes that broadcast to (B, H, Nq, Nk).

    Accepted: (B, Nq, Nk), the same for all heads; (B, H, Nq, Nk); (1, Nq, Nk) as an explicit broadcast. A batch that
    equals the number of heads never changes the meaning: three axes are always (batch, query, key).

    Args:
        queries, keys: Nq and Nk, where they are known.

    Raises:
        ValueError: another dtype, number of axes or size.
    """
    pairs = f"{'Nq' if queries is None else queries}, {'Nk' if keys is None else keys}"
    expected = f"bool of shape ({batch} or 1, {pairs}) or ({batch} or 1, {num_heads} or 1, {pairs})"
    if visible.dtype != torch.bool or visible.ndim not in (3, 4):
        raise ValueError(f"visible must be {expected}, got {visible.dtype} {tuple(visible.shape)}")
    if visible.ndim == 3:
        visible = visible[:, None]
    wrong = visible.shape[0] not in (1, batch) or visible.shape[1] not in (1, num_heads)
    for length, given in ((queries, visible.shape[2]), (keys, visible.shape[3])):
        if length is not None and are_constants(length, given):
            wrong = wrong or length != given
    if wrong:
        raise ValueError(f"visible must be {expected}, got {tuple(visible.shape)}")
    return visible


def intersect(*masks: Tensor | None) -> Tensor | None:
    """Keys visible under every given mask (None hides nothing); shapes broadcast from the right."""
    given = [mask for mask in masks if mask is not None]
    return reduce(torch.logical_and, given) if given else None


def sees_itself(q: TokenGrid, k: TokenGrid) -> bool:
    """Whether every query is one of the keys, or sees a prefix token, under any mask here that shows a query itself."""
    if k.num_prefix > 0:
        return True
    axes = zip(q.origin, q.size, q.steps, k.origin, k.size, k.steps, strict=True)
    return q.num_prefix == 0 and all(
        (first - first_k) % step_k == 0
        and step % step_k == 0
        and first >= first_k
        and first + (size - 1) * step <= first_k + (size_k - 1) * step_k
        for first, size, step, first_k, size_k, step_k in axes
    )


class GeometricMask(NamedTuple):
    """Which keys a query may see, told by where both lie: a kernel can leave out what no query of a block sees.

    Attributes:
        is_causal: keys at or before the query (:func:`causal`).
        window: keys within this radius, one or one per axis (:func:`neighbourhood`); None for any distance.
    """

    is_causal: bool = False
    window: int | tuple[int, ...] | None = None

    def dense(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> Tensor:
        """The mask of all pairs, bool (Nq, Nk)."""
        return _dense(self, q, k, None if device is None else torch.device(device))

    def radii(self, ndim: int) -> tuple[int, ...] | None:
        """The radius of every axis; None for any distance."""
        return (self.window,) * ndim if isinstance(self.window, int) else self.window


def geometric_mask(*, is_causal: bool, window: int | tuple[int, ...] | None) -> GeometricMask | None:
    """``causal`` and ``window`` together; None when neither is asked for."""
    return GeometricMask(is_causal, window) if is_causal or window is not None else None


def intersect_geometric(a: GeometricMask | None, b: GeometricMask | None) -> GeometricMask | None:
    """Keys visible under both (None hides nothing)."""
    if a is None or b is None:
        return b if a is None else a
    window = b.window if a.window is None else a.window
    if a.window is not None and b.window is not None:
        ndim = max(len(mask.window) if isinstance(mask.window, tuple) else 1 for mask in (a, b))
        window = tuple(map(min, a.radii(ndim) or (), b.radii(ndim) or ()))
        window = window[0] if isinstance(a.window, int) and isinstance(b.window, int) else window
    return GeometricMask(a.is_causal or b.is_causal, window)


@once_per_forward
def _dense(mask: GeometricMask, q: TokenGrid, k: TokenGrid, device: torch.device | None) -> Tensor:
    visible = intersect(
        causal(q, k, device) if mask.is_causal else None,
        None if mask.window is None else neighbourhood(q, k, mask.window, device),
    )
    return torch.ones(q.num_tokens, k.num_tokens, dtype=torch.bool, device=device) if visible is None else visible
