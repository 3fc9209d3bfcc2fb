"""What encodings with tables over offsets share: lookup, prefix entries, resampling when loaded elsewhere.

Legend: H heads (or 1 when shared), n axes, M_a largest offset along axis a, L_a = 2 M_a + 1 table length,
Sq/Sk one axis of the query/key grid, Pq/Pk grid tokens, Nq/Nk with prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_rpe.geometry import Device, TokenGrid, axis_offsets

PREFIX_CHOICES = ("zero", "learned")


def clipped_index(q: TokenGrid, k: TokenGrid, axis: int, max_distance: int, device: Device = None) -> Tensor:
    """Table row of every pair along one axis, clip(delta) + M, int64 (Sq, Sk): saturates, never wraps."""
    return axis_offsets(q, k, axis, device).clamp(-max_distance, max_distance) + max_distance


def distinct_offsets(
    q: TokenGrid, k: TokenGrid, axis: int, device: Device = None, *, limit: int | None = None
) -> tuple[Tensor, Tensor]:
    """All offsets between the first and the last that occur along one axis, and where each pair finds its own.

    For tables computed from parameters: R of them (Sq + Sk - 1 for neighbouring tokens) instead of one a pair.

    Args:
        limit: offsets farther than this count as it.

    Returns:
        int64 offsets (R,), rising by 1, and int64 index (Sq, Sk) into them.
    """
    last_q = q.origin[axis] + (q.size[axis] - 1) * q.steps[axis]
    last_k = k.origin[axis] + (k.size[axis] - 1) * k.steps[axis]
    low, high = q.origin[axis] - last_k, last_q - k.origin[axis]
    delta = axis_offsets(q, k, axis, device)
    if limit is not None:  # sym_min and sym_max take the symbolic sizes of an export too
        low = torch.sym_max(-limit, torch.sym_min(limit, low))  # type: ignore[assignment]
        high = torch.sym_max(-limit, torch.sym_min(limit, high))  # type: ignore[assignment]
        delta = delta.clamp(-limit, limit)
    return torch.arange(high - low + 1, device=device) + low, delta - low


def project(values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear layer in at least float32, autocast or not: positions are never rounded to low precision."""
    dtype = torch.promote_types(weight.dtype, torch.float32)
    kind = values.device.type
    with nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False):  # meta has no autocast
        return F.linear(values.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


def table_bias(table: Tensor, q: TokenGrid, k: TokenGrid, max_distance: Sequence[int]) -> Tensor:
    """Look up T[h, delta_1 + M_1, ..., delta_n + M_n] for all grid pairs.

    One ``index_select`` an axis: the index tensors stay (Sq, Sk), and no (Nq, Nk) index exists.

    Args:
        table: (H, L_1, ..., L_n).

    Returns:
        (H, Pq, Pk), in at least float32.
    """
    table = table.to(torch.promote_types(table.dtype, torch.float32))
    index = [clipped_index(q, k, axis, max_distance[axis], table.device) for axis in range(q.ndim)]
    return lookup(table, index, q, k)


def lookup(table: Tensor, index: Sequence[Tensor], q: TokenGrid, k: TokenGrid) -> Tensor:
    """T[h, index_1, ..., index_n] of all grid pairs, one index (Sq, Sk) an axis: (H, L_1, ..., L_n) -> (H, Pq, Pk)."""
    for axis, rows in enumerate(index):
        table = table.index_select(1 + axis, rows.flatten())
    heads = table.shape[0]
    # (H, Sq_1 Sk_1, ..., Sq_n Sk_n) -> (H, Sq_1 ... Sq_n, Sk_1 ... Sk_n)
    pairs = [size for axis in range(q.ndim) for size in (q.size[axis], k.size[axis])]
    order = [0, *range(1, 2 * q.ndim, 2), *range(2, 2 * q.ndim + 1, 2)]
    return table.reshape(heads, *pairs).permute(order).reshape(heads, q.num_patches, k.num_patches)


def with_prefix(grid_bias: Tensor, q: TokenGrid, k: TokenGrid, prefix_bias: Tensor | None) -> Tensor:
    """Add the rows and columns of the prefix tokens: (H, Pq, Pk) -> (H, Nq, Nk).

    Args:
        prefix_bias: (H, 3), for prefix->patch, patch->prefix, prefix->prefix; None means 0.
    """
    if q.num_prefix == 0 and k.num_prefix == 0:
        return grid_bias
    if prefix_bias is None:
        return F.pad(grid_bias, (k.num_prefix, 0, q.num_prefix, 0))
    heads = grid_bias.shape[0]
    to_patch, to_prefix, between = prefix_bias.to(grid_bias.dtype)[..., None, None].unbind(1)  # (H, 1, 1) each
    left = to_prefix.expand(heads, q.num_patches, k.num_prefix)
    corner = between.expand(heads, q.num_prefix, k.num_prefix)
    top = torch.cat([corner, to_patch.expand(heads, q.num_prefix, k.num_patches)], dim=2)
    return torch.cat([top, torch.cat([left, grid_bias], dim=2)], dim=1)


def prefix_alone(q: TokenGrid, k: TokenGrid, prefix_bias: Tensor | None) -> Tensor | None:
    """The prefix entries with 0 for all grid pairs, (H, Nq, Nk) in at least float32; None if there is nothing to add.

    For encodings whose grid part is not a dense bias.
    """
    if prefix_bias is None or q.num_prefix + k.num_prefix == 0:
        return None
    prefix_bias = prefix_bias.to(torch.promote_types(prefix_bias.dtype, torch.float32))
    empty = prefix_bias.new_zeros(prefix_bias.shape[0], q.num_patches, k.num_patches)
    return with_prefix(empty, q, k, prefix_bias)


def prefix_parameter(prefix: str, num_rows: int, grid: TokenGrid) -> nn.Parameter | None:
    """The (num_rows, 3) parameter of ``prefix="learned"``, None where there is nothing to learn."""
    return nn.Parameter(torch.empty(num_rows, 3)) if prefix == "learned" and grid.num_prefix > 0 else None


def resample(table: Tensor, dims: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """Bicubic resampling of a table over offsets along some dimensions; the others (heads, width) are untouched.

    The centre (offset 0) of an odd length stays the centre of an odd length, bit for bit; a constant stays constant;
    equal lengths return the table itself.

    Args:
        table: any shape; dims: dimensions to resample; lengths: their new lengths.
    """
    for dim, length in zip(dims, lengths, strict=True):
        if table.shape[dim] == length:
            continue
        moved = table.movedim(dim, -1)
        flat = moved.reshape(1, -1, 1, moved.shape[-1]).to(torch.promote_types(table.dtype, torch.float32))
        flat = F.interpolate(flat, size=(1, length), mode="bicubic", align_corners=False)
        table = flat.reshape(*moved.shape[:-1], length).movedim(-1, dim).to(table.dtype)
    return table.contiguous()


def resample_on_load(module: nn.Module, dims: dict[str, Sequence[int]], *, exact: bool) -> None:
    """Make ``load_state_dict`` resample the named tables of ``module`` when they come from another native grid.

    Args:
        dims: for each parameter, the dimensions that run over offsets.
        exact: the table covers its native grid exactly (no ``max_distance`` given); only then is a longer table the
            same thing at another resolution, otherwise a difference in length is an error.
    """
    module.register_load_state_dict_pre_hook(partial(_resample_entries, dims=dims, exact=exact))


def _resample_entries(
    module: nn.Module,
    state_dict: dict[str, Any],
    prefix: str,
    local_metadata: dict[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
    *,
    dims: dict[str, Sequence[int]],
    exact: bool,
) -> None:
    for name, over in dims.items():
        source = state_dict.get(prefix + name)
        target = getattr(module, name)
        if source is None or source.shape == target.shape:
            continue
        same_rest = source.ndim == target.ndim and all(
            source.shape[dim] == target.shape[dim] for dim in range(target.ndim) if dim not in over
        )
        if not same_rest:
            error_msgs.append(
                f"{prefix}{name}: the weights have shape {tuple(source.shape)}, this model {tuple(target.shape)}; "
                "only offsets can be resampled, not heads, widths or axes"
            )
        elif not exact:
            error_msgs.append(
                f"{prefix}{name}: the weights have shape {tuple(source.shape)}, this model {tuple(target.shape)}, and "
                "max_distance is fixed: build the model with the max_distance of the weights"
            )
        else:
            state_dict[prefix + name] = resample(source, over, [target.shape[dim] for dim in over])
