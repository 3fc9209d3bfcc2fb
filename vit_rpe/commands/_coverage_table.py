"""timm's pretrained files with a relative or rotary position: exact, looked at only, or refused with the reason."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

from vit_rpe.commands._random_weights import randomize

__all__ = ["Outcome", "outcome_of", "print_coverage"]

FLOAT32, FLOAT64 = 1e-4, 1e-6
"""Largest differences of features, relative to the largest feature, that count as exact. timm computes angles and the
inputs of position networks in float32, in models of float64 too, which bounds the second."""


@dataclass(frozen=True)
class Outcome:
    """What became of one architecture.

    Attributes:
        state: ``"exact"``, ``"looked at only"`` or ``"refused"``.
        route: the function that takes it in; empty where none does.
        differences: of the features, relative to the largest, (float32, float64); None where none was computed.
        reason: why it is not exact.
    """

    state: str
    route: str = ""
    differences: tuple[float, float] | None = None
    reason: str = ""


def outcome_of(name: str) -> Outcome:
    """Take one architecture in: names and shapes at full size on the meta device, numbers cut down."""
    import timm

    from vit_rpe.models.exchange.coverage import on_meta, reduced_args
    from vit_rpe.viz import record

    whole: Any = on_meta(name)
    reasons = []
    for route, convert in _routes().items():
        try:
            names = whole.state_dict()
            taken_in = convert(on_meta(name))
            if route == "replace_attention":
                taken_in.load_state_dict(names)
            differences = _differences(name, route, convert, reduced_args(whole), _sizes(whole))
        except (ValueError, RuntimeError, TypeError) as error:
            reasons.append(str(error).split("\n")[0])
            continue
        if differences[0] <= FLOAT32 and differences[1] <= FLOAT64:
            return Outcome("exact", route, differences)
        return Outcome("refused", route, differences, "differs")
    try:
        with record(timm.create_model(name, **reduced_args(whole))):
            return Outcome("looked at only", reason=reasons[0])
    except ValueError:
        return Outcome("refused", reason=reasons[0])


def _routes() -> dict[str, Any]:
    import vit_rpe

    return {"replace_attention": vit_rpe.replace_attention, "from_timm": vit_rpe.from_timm}


def _sizes(model: Any) -> list[tuple[int, int]]:
    """A square image and one that is not, in pixels."""
    patch = getattr(getattr(model, "encoder", model), "patch_embed", None)
    side = int(getattr(patch, "patch_size", (16, 16))[0])
    unit = side * (4 if side >= 14 else 16)
    return [(unit, unit), (unit, 3 * unit // 2)]


_FOUND: dict[str, tuple[float, float]] = {}


def _differences(
    name: str, route: str, convert: Any, small: dict[str, Any], sizes: list[tuple[int, int]]
) -> tuple[float, float]:
    """Largest relative difference of the features in float32 and in float64; once for architectures that are cut down
    to the same model."""
    import torch

    from vit_rpe.models.exchange.coverage import on_meta

    cut = on_meta(name, **small, **_size_args(name, sizes[-1]))
    numbers = [
        (key, value)
        for module in cut.modules()
        for key, value in sorted(vars(module).items())
        if isinstance(value, (int, float, str, tuple)) and not key.startswith("_")
    ]
    key = f"{route} {cut} {numbers}"
    if key not in _FOUND:
        found = [
            max(_difference(name, convert, small, size, dtype) for size in sizes)
            for dtype in (torch.float32, torch.float64)
        ]
        _FOUND[key] = (found[0], found[1])
    return _FOUND[key]


def _size_args(name: str, size: tuple[int, int]) -> dict[str, Any]:
    """The argument that sets the size of the image; models that have none take any."""
    if name.startswith("tiny_vit"):
        return {}
    return {"img_size": size[0] if size[0] == size[1] else size}


def _difference(name: str, convert: Any, small: dict[str, Any], size: tuple[int, int], dtype: Any) -> float:
    import timm
    import torch

    theirs: Any = timm.create_model(name, **small, **_size_args(name, size), dtype=dtype).eval()
    randomize(theirs, 0)
    images = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1)).to(dtype)
    with torch.no_grad():
        expected = theirs.forward_features(images)
        found = convert(theirs).forward_features(images)
    return float((found - expected).abs().max() / expected.abs().max())


def print_coverage(names: list[str] | None) -> None:
    """Print one row an architecture, in Markdown, and the sums.

    Args:
        names: architectures of timm; None for all that have a relative or rotary position.
    """
    from vit_rpe.models.exchange.coverage import architectures

    tags = architectures()
    print("| architecture | files | state | by | float32 | float64 | why not |")
    print("|---|---|---|---|---|---|---|")
    files: Counter[str] = Counter()
    for name in names or tags:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = outcome_of(name)
        files[found.state] += len(tags.get(name, ("",)))
        numbers = ["", ""] if found.differences is None else [f"{value:.1e}" for value in found.differences]
        cells = [f"`{name}`", str(len(tags.get(name, ("",)))), found.state, found.route, *numbers, found.reason]
        print("| " + " | ".join(cells) + " |", flush=True)
    print()
    parts = ", ".join(f"{files[state]} {state}" for state in ("exact", "looked at only", "refused"))
    print(f"{sum(files.values())} files: {parts}.")
