"""What encodings with tables over offsets share: lookup, prefix entries, resampling when loaded elsewhere.

Legend: H heads (or 1 when shared), n axes, M_a largest offset along axis a, L_a = 2 M_a + 1 table length,
Sq/Sk one axis of the query/key grid, Pq/Pk grid tokens, Nq/Nk with prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial, reduce
from typing import Any, cast

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._interface import PositionEncoding, at_least_float32
from vit_rpe.position.geometry import Device, TokenGrid, are_constants, axis_offsets
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.offset_tables import offset_range
from vit_rpe.position.resampling import RESAMPLINGS, resample
from vit_rpe.precision import full_precision, is_bare

PREFIX_CHOICES = ("zero", "learned")
AXES_CHOICES = ("joint", "summed")


@once_per_forward
def clipped_index(q: TokenGrid, k: TokenGrid, axis: int, max_distance: int, device: Device = None) -> Tensor:
    """Table row of every pair along one axis, clip(delta) + M, int64 (Sq, Sk): saturates, never wraps."""
    return axis_offsets(q, k, axis, device).clamp(-max_distance, max_distance) + max_distance


@once_per_forward
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
    low, count = offset_range(q, k, axis)
    high = low + count - 1
    neighbours = are_constants(low, count) and q.steps[axis] == k.steps[axis] == 1
    if neighbours and (limit is None or (-limit <= low and high <= limit)):
        rising = torch.arange(count, device=device)
        return rising + low, rising.unfold(0, k.size[axis], 1).flip(1)
    delta = axis_offsets(q, k, axis, device)
    if limit is not None:  # sym_min and sym_max take the symbolic sizes of an export too
        low = torch.sym_max(-limit, torch.sym_min(limit, low))  # type: ignore[assignment]
        high = torch.sym_max(-limit, torch.sym_min(limit, high))  # type: ignore[assignment]
        delta = delta.clamp(-limit, limit)
    return torch.arange(high - low + 1, device=device) + low, delta - low


def occurring_offsets(q: TokenGrid, k: TokenGrid, axis: int, device: Device = None) -> Tensor:
    """All offsets between the first and the last that occur along one axis, rising by 1, int64 (R,)."""
    low, count = offset_range(q, k, axis)
    return torch.arange(count, device=device) + low


def draw_normal(parameter: Tensor, std: float) -> None:
    """Fill with normal values, cut at two units; ``std=0`` gives zeros."""
    if std == 0:
        nn.init.zeros_(parameter)
    else:
        nn.init.trunc_normal_(parameter, std=std)


def project(layer: nn.Module, values: Tensor) -> Tensor:
    """Call a linear layer in at least float32, autocast or not: positions are never rounded to low precision.

    The layer is called, not its weight read: adapters, hooks, parametrisations and quantised layers stand in its place.
    """
    own = {name: value for name, value in layer.named_parameters() if value.is_floating_point()}
    found = [value.dtype for value in own.values()] or [values.dtype]
    dtype = reduce(torch.promote_types, found, torch.float32)
    low = {name: value.to(dtype) for name, value in own.items() if value.dtype != dtype}
    with full_precision(values.device) if _rounds(values.device) else nullcontext():
        return torch.func.functional_call(layer, low, values.to(dtype)) if low else layer(values.to(dtype))


def project_columns(layer: nn.Module, columns: Tensor) -> Tensor:
    """:func:`project` with one value a column, (C_in, R) to (C_out, R): rows of the result are as long as it can be."""
    if not is_read(layer):
        return project(layer, columns.mT).mT
    own, bias = cast(nn.Linear, layer).weight, cast(nn.Linear, layer).bias
    dtype = torch.promote_types(own.dtype, torch.float32)
    weight, columns = own.to(dtype), columns.to(dtype)
    with full_precision(columns.device) if _rounds(columns.device) else nullcontext():
        if bias is None:
            return weight @ columns
        return torch.addmm(bias.to(dtype)[:, None], weight, columns)


def is_read(layer: nn.Module) -> bool:
    """Whether :func:`project_columns` reads the weight of a layer instead of calling it; nobody sees what it gives."""
    return not torch.compiler.is_compiling() and is_bare(layer)


def _rounds(device: torch.device) -> bool:
    """Whether autocast is on; the meta device has none."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def zero_layer(layer: nn.Module) -> None:
    """Make a linear layer give zeros.

    Raises:
        ValueError: an adapter or parametrisation stands in its place, whose weight is computed.
    """
    own = dict(layer.named_parameters(recurse=False))
    if type(layer) is not nn.Linear or "weight" not in own:
        raise ValueError(f"zero_() needs a plain linear layer, got {layer}: call it before adapters are put around it")
    for parameter in own.values():
        parameter.zero_()


def offset_table(
    table: Tensor, q: TokenGrid, k: TokenGrid, max_distance: Sequence[int], *, symmetric: bool = False
) -> Tensor:
    """The entries of T[h, delta_1 + M_1, ..., delta_n + M_n] at the offsets that occur between two grids.

    Args:
        table: (H, L_1, ..., L_n); offsets beyond M_a have the entry at the edge.
        symmetric: T[h, abs(delta_1), ..., abs(delta_n)] instead, (H, M_1 + 1, ..., M_n + 1).

    Returns:
        (H, R_1, ..., R_n) in at least float32, in the form of :class:`PositionTerms`' ``offset_bias``.
    """
    table = at_least_float32(table)
    for axis, distance in enumerate(max_distance):
        table = axis_entries(table, 1 + axis, q, k, axis, distance, symmetric=symmetric)
    return table


def check_axes(axes: str, grid: TokenGrid, *, default: str) -> None:
    """Raise ValueError unless ``axes`` is one of :data:`AXES_CHOICES`; in 1-D, where all are alike, the default."""
    check_choice("axes", axes, AXES_CHOICES)
    if axes != default and grid.ndim == 1:
        raise ValueError(f"axes={axes!r} needs a grid of several axes, got {grid.size}: in 1-D leave it {default!r}")


def axis_entries(
    table: Tensor, dim: int, q: TokenGrid, k: TokenGrid, axis: int, max_distance: int, *, symmetric: bool = False
) -> Tensor:
    """The entries of a table at the offsets that occur along one axis, which is dimension ``dim`` of the table."""
    low, count = offset_range(q, k, axis)
    if symmetric:
        rows = (torch.arange(count, device=table.device) + low).abs().clamp(max=max_distance)
        return table.index_select(dim, rows)
    if are_constants(low, count) and low >= -max_distance and low + count - 1 <= max_distance:
        return table.narrow(dim, low + max_distance, count)
    rows = (torch.arange(count, device=table.device) + low).clamp(-max_distance, max_distance) + max_distance
    return table.index_select(dim, rows)


def axis_sum(tables: Sequence[Tensor]) -> Tensor:
    """Tables over the offsets of one axis each, (H or 1, R_a), as the table of their sum, (H or 1, R_1, ..., R_n)."""
    total = tables[0]
    for table in tables[1:]:
        total = total[..., None] + table.view(table.shape[0], *(1,) * (total.ndim - 1), -1)
    return total


def prefix_entries(prefix_bias: Tensor | None, q: TokenGrid, k: TokenGrid) -> Tensor | None:
    """The learned prefix scalars (H, 3) in at least float32; None where there is nothing to add."""
    if prefix_bias is None or q.num_prefix + k.num_prefix == 0:
        return None
    return at_least_float32(prefix_bias)


def prefix_parameter(prefix: str, num_rows: int, grid: TokenGrid) -> nn.Parameter | None:
    """The (num_rows, 3) parameter of ``prefix="learned"``; None for ``"zero"``.

    Raises:
        ValueError: ``"learned"`` where the native grid has no prefix tokens.
    """
    if prefix == "zero":
        return None
    if grid.num_prefix == 0:
        raise ValueError(
            f"prefix={prefix!r} is for pairs with class or register tokens, and the grid {grid.size} has none: "
            "leave prefix='zero', or give the model such tokens"
        )
    return nn.Parameter(torch.empty(num_rows, 3))


def resample_on_load(
    module: PositionEncoding, dims: dict[str, Sequence[int]], *, exact: bool, method: str, symmetric: bool = False
) -> None:
    """Make ``load_state_dict`` resample the named tables of ``module`` when they come from another native grid.

    Args:
        dims: for each parameter, the dimensions that run over offsets.
        exact: the table covers its native grid exactly (no ``max_distance`` given); only then is a longer table the
            same thing at another resolution, otherwise a difference in length is an error.
        method: one of :data:`vit_rpe.position.resampling.RESAMPLINGS`.
        symmetric: the tables hold offsets from 0 on, for both signs.

    Raises:
        ValueError: another ``method``, or one that would have no effect.
    """
    check_choice("resample", method, RESAMPLINGS)
    if exact:
        module.offset_dims = dims
        module.offsets_are_halved = symmetric
    elif method != "bicubic":
        raise ValueError(
            f"resample={method!r} has no effect on {module.name!r} here: a table with a fixed max_distance is never "
            "resampled; leave resample out, or let the table follow the native grid"
        )
    hook = partial(_resample_entries, dims=dims, exact=exact, method=method, symmetric=symmetric)
    module.register_load_state_dict_pre_hook(hook)


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
    method: str,
    symmetric: bool,
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
            lengths = [target.shape[dim] for dim in over]
            one = _resample_half if symmetric else resample
            state_dict[prefix + name] = one(source, over, lengths, method=method)


def _resample_half(table: Tensor, dims: Sequence[int], lengths: Sequence[int], *, method: str) -> Tensor:
    """:func:`resample` of a table that holds offsets from 0 on: its mirror image is put in front of it, and cut off."""
    for dim, length in zip(dims, lengths, strict=True):
        size = table.shape[dim]
        whole = torch.cat([table.narrow(dim, 1, size - 1).flip(dim), table], dim)
        table = resample(whole, [dim], [2 * length - 1], method=method).narrow(dim, length - 1, length)
    return table.contiguous()
