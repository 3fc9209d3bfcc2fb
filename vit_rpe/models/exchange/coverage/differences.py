"""How far timm's architectures and ours are apart, cut down, on large random weights and random images."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import timm
import torch
from timm.models import mvitv2
from torch import Tensor

from vit_rpe.models.exchange.coverage.float64 import in_float64
from vit_rpe.models.exchange.coverage.listing import not_drawn, on_meta
from vit_rpe.models.exchange.coverage.random_weights import randomize
from vit_rpe.models.exchange.coverage.reduced import image_sizes, reduced_args
from vit_rpe.models.families.mvitv2 import fit_tables

Convert = Callable[..., Any]


class Differences(NamedTuple):
    """Largest absolute differences of features over the largest feature, the larger of a square image and another.

    Attributes:
        float32: in float32.
        float64: with all of both computed in float64.
        without: what leaving position out changes in float64: only much smaller differences say anything.
    """

    float32: float
    float64: float
    without: float


def differences_of(name: str, convert: Convert) -> Differences:
    """Compare one architecture; those that are cut down to the same model are compared once.

    Args:
        name: in timm.
        convert: from a model of timm to ours; takes ``rpe`` as its second argument.
    """
    whole = on_meta(name)
    small, sizes = reduced_args(whole), image_sizes(whole)
    cut = on_meta(name, **small, **_size_args(name, sizes[-1]))
    key = f"{convert.__name__} {_numbers(cut)}"
    if key not in _FOUND:
        in_float32 = [_difference(name, convert, small, size, wide=False)[0] for size in sizes]
        wide = [_difference(name, convert, small, size, wide=True) for size in sizes]
        _FOUND[key] = Differences(max(in_float32), max(each[0] for each in wide), min(each[1] for each in wide))
    return _FOUND[key]


_FOUND: dict[str, Differences] = {}


def _numbers(model: Any) -> str:
    """All that tells two models of random weights apart: their modules, and the plain attributes of those."""
    plain = [
        (name, value)
        for module in model.modules()
        for name, value in sorted(vars(module).items())
        if isinstance(value, (int, float, str, tuple)) and not name.startswith("_")
    ]
    return f"{model} {plain}"


def _size_args(name: str, size: tuple[int, int]) -> dict[str, Any]:
    """The argument that sets the size of the image; models that have none take any."""
    if name.startswith("tiny_vit"):
        return {}
    if name.startswith("mvitv2"):
        return {"img_size": max(size)}
    return {"img_size": size[0] if size[0] == size[1] else size}


def _difference(
    name: str, convert: Convert, small: dict[str, Any], size: tuple[int, int], *, wide: bool
) -> tuple[float, float]:
    """What ours differs by, and (only ``wide``) what timm's differs by from itself without position."""
    with in_float64() if wide else nullcontext(), torch.no_grad():
        with not_drawn():
            theirs: Any = timm.create_model(name, **small, **_size_args(name, size)).eval()
        if isinstance(theirs, mvitv2.MultiScaleVit):
            fit_tables(theirs, size)
        randomize(theirs, 0)
        images = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1))
        expected = theirs.forward_features(images)
        without = _relative(_without_position(theirs, convert).forward_features(images), expected) if wide else 0.0
        return _relative(convert(theirs).forward_features(images), expected), without


def _without_position(theirs: Any, convert: Convert) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that weights are left out is meant
        return convert(copy.deepcopy(theirs), "none")


def _relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())
