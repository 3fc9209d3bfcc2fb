"""From what a person writes as ``rpe`` to an encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vit_rpe.checks import check_type, closest
from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.encodings._registry import encoding_class, encoding_options
from vit_rpe.position.geometry import Device, TokenGrid

Spec = str | Mapping[str, Any]
"""One encoding: its name, or ``{"name": ..., option: ...}``."""

CONTEXT_OPTIONS = ("depth_index", "depth")
"""Options the model fills in, where an encoding asks for them: which layer this is, out of how many."""


def parse_spec(spec: Spec) -> dict[str, Any]:
    """Normalise one encoding description to ``{"name": ..., option: ...}``; check names, and values by their type.

    Raises:
        ValueError: not a name or mapping with a name, an unknown name or option, a value of another type.
    """
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise ValueError(f"rpe must be a name or a mapping with a 'name', got {spec!r}")
    options = encoding_options(spec["name"])
    for key, value in spec.items():
        if key == "name":
            continue
        if key not in options:
            raise ValueError(
                f"rpe {spec['name']!r} has no option {key!r}{closest(str(key), options)}; "
                f"it has: {', '.join(options) or 'none'}"
            )
        check_type(f"{key} of rpe {spec['name']!r}", _as_tuple(value), options[key].annotation)
        if key == "init_std" and value < 0:
            raise ValueError(f"init_std of rpe {spec['name']!r} must be at least 0, got {value!r}")
    return dict(spec)


def parse_specs(rpe: Spec | Sequence[Spec] | None) -> list[dict[str, Any]]:
    """Normalise what a model takes as ``rpe`` (None, a name, a mapping, or a list of those); ``"none"`` is dropped.

    Raises:
        ValueError: as :func:`parse_spec`, another type, or the same encoding twice.
    """
    if rpe is not None and not isinstance(rpe, (str, Mapping, list, tuple)):
        raise ValueError(f"rpe must be a name, a mapping with a 'name', a list of those or None, got {rpe!r}")
    given = [] if rpe is None else [rpe] if isinstance(rpe, (str, Mapping)) else list(rpe)
    specs = [parse_spec(spec) for spec in given]
    specs = [spec for spec in specs if spec["name"] != "none"]
    names = [spec["name"] for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"rpe={rpe!r} names {name!r} more than once")
    return specs


def create_encoding(
    spec: Spec,
    num_heads: int,
    head_dim: int,
    grid: TokenGrid,
    *,
    depth_index: int | None = None,
    depth: int | None = None,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> PositionEncoding:
    """Build one encoding by name.

    Args:
        spec: ``"bias"`` or ``{"name": "bias", "max_distance": 7}``.
        num_heads, head_dim: of the attention it serves.
        grid: the native grid.
        depth_index, depth: which layer of how many; handed on to the encodings that use it.
        device, dtype: of the parameters.

    Raises:
        ValueError: unknown name or option, or a value the encoding refuses.
    """
    spec = parse_spec(spec)
    options = {key: _as_tuple(value) for key, value in spec.items() if key != "name"}
    known = encoding_options(spec["name"])
    for key, value in (("depth_index", depth_index), ("depth", depth)):
        if value is not None and key in known:
            options.setdefault(key, value)
    with torch.device(device) if device is not None else torch.device(torch.get_default_device()):
        encoding = encoding_class(spec["name"])(num_heads, head_dim, grid, **options)
    encoding.spec = spec
    return encoding if dtype is None else encoding.to(dtype)


def resized(encoding: PositionEncoding, grid: TokenGrid) -> PositionEncoding:
    """The same encoding for another native grid: options kept, tables resampled, what is frozen stays so, on the same
    device and dtype."""
    reference = next(encoding.parameters(), None)
    context = {key: getattr(encoding, key) for key in CONTEXT_OPTIONS if hasattr(encoding, key)}
    new = create_encoding(
        encoding.spec,
        encoding.num_heads,
        encoding.head_dim,
        grid,
        device=None if reference is None else reference.device,
        dtype=None if reference is None else reference.dtype,
        **context,
    )
    new.load_state_dict(encoding.state_dict())
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(encoding.get_parameter(name).requires_grad)
    return new.train(encoding.training)


def _as_tuple(value: Any) -> Any:
    """Lists, which JSON and YAML give, become tuples."""
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list) else value
