"""The interface of an encoding, the registry, and what tables share.

Legend: H heads, D head width, n axes, P grid tokens, N = prefix + P, M_a largest offset an axis table holds.
"""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_count, check_type
from vit_rpe.geometry import Device, TokenGrid
from vit_rpe.suggest import closest, unknown_name
from vit_rpe.terms import PositionTerms

Spec = str | Mapping[str, Any]
"""One encoding: its name, or ``{"name": ..., option: ...}``."""

CONTEXT_OPTIONS = ("depth_index", "depth")
"""Options the model fills in, where an encoding asks for them: which layer this is, out of how many."""


@dataclass(frozen=True)
class Card:
    """What a person wants to know of an encoding before choosing it.

    Attributes:
        paper: title and arXiv id.
        adds: the fields of PositionTerms it fills.
        elsewhere: what happens at an offset or grid the parameters were not made for.
        axes: numbers of axes it is defined for.
        decodes: works with a key/value cache, one query at a time.
        additive: adds to the logits only, so that at ``zero_()`` the attention is that of no position.
        per_pair: the terms have an entry for every pair of tokens, so that on a large grid they are asked for one
            window of queries at a time.
    """

    paper: str
    adds: tuple[str, ...]
    elsewhere: str
    axes: tuple[int, ...] = (1, 2, 3)
    decodes: bool = True
    additive: bool = True
    per_pair: bool = False


class PositionEncoding(nn.Module, ABC):
    """Turns two token grids into :class:`PositionTerms`.

    Args:
        num_heads: H.
        head_dim: D.
        grid: the native grid, the one the parameters are made for.

    State is parameters only: no buffers, nothing remembered between calls.
    """

    name: ClassVar[str]
    card: ClassVar[Card]
    spec: dict[str, Any]
    offset_dims: Mapping[str, Sequence[int]] = MappingProxyType({})
    """For parameters whose length is that of the native grid: the dimensions that run over its offsets."""

    def __init__(self, num_heads: int, head_dim: int, grid: TokenGrid) -> None:
        super().__init__()
        check_count("num_heads", num_heads)
        check_count("head_dim", head_dim)
        if grid.ndim not in self.card.axes:
            raise ValueError(
                f"{self.name!r} is defined for {_axes_text(self.card.axes)} axes, got the grid {grid.size}"
            )
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.grid = grid
        self.register_load_state_dict_pre_hook(_warn_of_missing)

    @abstractmethod
    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        """The terms for queries on ``q`` and keys on ``k``, in float32 or better."""

    def reset_parameters(self) -> None:
        """Draw the parameters anew (nothing to do without parameters)."""

    @torch.no_grad()
    def zero_(self) -> None:
        """Make the encoding add nothing, for starting from weights trained without it.

        Raises:
            ValueError: it changes the attention whatever its parameters are.
        """
        if not self.card.additive:
            raise ValueError(f"{self.name!r} changes the attention for every value of its parameters")
        for parameter in self.parameters():
            parameter.zero_()

    def grid_of(self, weights: Mapping[str, Tensor]) -> tuple[int, ...] | None:
        """The native grid that weights of this encoding were made for; None where they do not tell."""
        lengths = [
            weights[name].shape[dim] for name, dims in self.offset_dims.items() if name in weights for dim in dims
        ]
        return tuple((length + 1) // 2 for length in lengths) if len(lengths) == self.grid.ndim else None

    def no_weight_decay(self) -> set[str]:
        """Names of own parameters that weight decay must leave alone; by default all."""
        return {name for name, _ in self.named_parameters()}

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in getattr(self, "spec", {}).items())


Encoding = TypeVar("Encoding", bound=type[PositionEncoding])
_REGISTRY: dict[str, type[PositionEncoding]] = {}


def register(name: str, card: Card) -> Callable[[Encoding], Encoding]:
    """Class decorator: make an encoding known under ``name`` to every model, command and picture."""

    def add(cls: Encoding) -> Encoding:
        if name in _REGISTRY and _REGISTRY[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"an encoding named {name!r} exists already: {_REGISTRY[name].__qualname__}")
        cls.name = name
        cls.card = card
        _REGISTRY[name] = cls
        return cls

    return add


def list_encodings() -> list[str]:
    """Names of all registered encodings, sorted."""
    return sorted(_REGISTRY)


def encoding_class(name: str) -> type[PositionEncoding]:
    """The class registered under ``name``.

    Raises:
        ValueError: unknown; the message names the closest one.
    """
    if name not in _REGISTRY:
        raise unknown_name("rpe", name, _REGISTRY)
    return _REGISTRY[name]


def encoding_options(name: str) -> dict[str, inspect.Parameter]:
    """The options of an encoding, by name, as parameters of its constructor (``.default``, and the type
    ``.annotation``)."""
    parameters = inspect.signature(encoding_class(name).__init__, eval_str=True).parameters
    return {key: value for key, value in parameters.items() if value.kind is value.KEYWORD_ONLY}


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


def per_axis(value: int | tuple[int, ...] | None, grid: TokenGrid, *, name: str) -> tuple[int, ...]:
    """Largest offset per axis: None means exact on the native grid (size - 1), an int holds for every axis.

    Raises:
        ValueError: negative, or not one entry per axis.
    """
    if value is None:
        return tuple(size - 1 for size in grid.size)
    distances = tuple(value) if isinstance(value, tuple | list) else (value,) * grid.ndim
    if len(distances) != grid.ndim or any(not isinstance(d, int) or d < 0 for d in distances):
        raise ValueError(f"{name}={value!r} must be an integer >= 0, or one per axis of the grid {grid.size}")
    return distances


def check_choice(name: str, value: object, choices: tuple[Any, ...]) -> None:
    """Raise ValueError naming the closest choice unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise unknown_name(name, value, [str(choice) for choice in choices])


def at_least_float32(values: Tensor) -> Tensor:
    """Low precision up to float32; float32 and float64 as they are."""
    return values if values.dtype == torch.float32 else values.to(torch.promote_types(values.dtype, torch.float32))


def _warn_of_missing(module: PositionEncoding, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
    """Hook of ``load_state_dict``: with ``strict=False`` nothing keeps random values silently."""
    missing = [name for name, _ in module.named_parameters() if prefix + name not in state_dict]
    if missing:
        warnings.warn(
            f"the weights lack {', '.join(missing)} of the position encoding {module.name!r}, which keeps the values "
            "it had",
            stacklevel=2,
        )


def _as_tuple(value: Any) -> Any:
    """Lists, which JSON and YAML give, become tuples."""
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list) else value


def _axes_text(axes: tuple[int, ...]) -> str:
    return ", ".join(map(str, axes[:-1])) + (" or " if len(axes) > 1 else "") + str(axes[-1])
