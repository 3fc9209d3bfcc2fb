"""From what a person writes as ``rpe`` to an encoding, or several combined."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vit_rpe.encodings._interface import PositionEncoding, as_tuple
from vit_rpe.encodings._registry import encoding_class, encoding_options
from vit_rpe.encodings._spec import Spec, parse_spec, parse_specs
from vit_rpe.encodings.combined import CombinedEncoding
from vit_rpe.position.geometry import Device, TokenGrid


def create_encoding(
    spec: Spec | Sequence[Spec],
    num_heads: int,
    head_dim: int,
    grid: TokenGrid,
    *,
    depth_index: int | None = None,
    depth: int | None = None,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> PositionEncoding:
    """Build an encoding by name, or several that are used at once.

    Args:
        spec: ``"bias"``, ``{"name": "bias", "max_distance": 7}``, or a list of those (``"none"`` drops out of it; an
            empty one is ``"none"``).
        num_heads, head_dim: of the attention it serves.
        grid: the native grid.
        depth_index, depth: which layer of how many; handed on to the encodings that use it.
        device, dtype: of the parameters.

    Raises:
        ValueError: unknown name or option, a value the encoding refuses, the same encoding twice, or encodings that
            exclude each other.
    """
    several = isinstance(spec, (list, tuple))
    specs = parse_specs(spec) or [{"name": "none"}] if several else [parse_spec(spec)]  # type: ignore[arg-type]
    context = {"depth_index": depth_index, "depth": depth}
    with torch.device(device) if device is not None else torch.device(torch.get_default_device()):
        parts = [_create(one, num_heads, head_dim, grid, context) for one in specs]
    created = parts[0] if len(parts) == 1 else CombinedEncoding(parts)
    if len(parts) > 1:
        small = TokenGrid((1,) * grid.ndim)
        created(small, small, device)  # refuse what excludes each other now, not at the first batch
    return created if dtype is None else created.to(dtype)


def _create(
    spec: dict[str, object], num_heads: int, head_dim: int, grid: TokenGrid, context: dict[str, int | None]
) -> PositionEncoding:
    name = str(spec["name"])
    options = {key: as_tuple(value) for key, value in spec.items() if key != "name"}
    known = encoding_options(name)
    for key, value in context.items():
        if value is not None and key in known:
            options.setdefault(key, value)
    encoding = encoding_class(name)(num_heads, head_dim, grid, **options)
    encoding.spec = spec
    return encoding
