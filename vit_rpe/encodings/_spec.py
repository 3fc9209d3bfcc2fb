"""What a person writes as ``rpe``, checked and in one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vit_rpe.checks import check_type, closest, plain
from vit_rpe.encodings._interface import as_tuple
from vit_rpe.encodings._registry import encoding_class, encoding_options

Spec = str | Mapping[str, Any]
"""One encoding: its name, or ``{"name": ..., option: ...}``."""


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
    understood = encoding_options(spec["name"], deprecated=True)
    found: dict[str, Any] = plain(dict(spec))
    for key, value in found.items():
        if key == "name":
            continue
        absent = encoding_class(found["name"]).absent_options
        if key in absent:
            raise ValueError(f"rpe {found['name']!r} cannot have {key}={value!r}: {absent[key]}")
        if key not in understood:
            raise ValueError(
                f"rpe {found['name']!r} has no option {key!r}{closest(str(key), options)}; "
                f"it has: {', '.join(options) or 'none'}"
            )
        check_type(f"{key} of rpe {found['name']!r}", as_tuple(value), understood[key].annotation)
        if key == "init_std" and value < 0:
            raise ValueError(f"init_std of rpe {found['name']!r} must be at least 0, got {value!r}")
    return found


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
