"""The interface of an encoding.

Legend: H heads, D head width, n axes, P grid tokens, N = prefix + P, M_a largest offset an axis table holds.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_count
from vit_rpe.encodings._card import Card
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms
from vit_rpe.precision import copied, is_computed, placement_of


class PositionEncoding(nn.Module, ABC):
    """Turns two token grids into :class:`PositionTerms`.

    One encoding, several combined, and one turned into constants all have this interface.

    Args:
        num_heads: H.
        head_dim: D.
        grid: the native grid, the one the parameters are made for.

    State is parameters only: no buffers, nothing remembered between calls.
    """

    name: str
    card: Card
    native: tuple[int, ...]
    spec: dict[str, Any] | None = None
    """Name and options, as :func:`vit_rpe.encodings.create_encoding` was given them."""
    offset_dims: Mapping[str, Sequence[int]] = MappingProxyType({})
    """For parameters whose length is that of the native grid: the dimensions that run over its offsets."""
    offsets_are_halved: bool = False
    """Whether these dimensions hold the offsets from 0 on, for both signs."""
    deprecated_options: ClassVar[frozenset[str]] = frozenset()
    """Old names of options, which are understood and not listed."""
    absent_options: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Options of related encodings that this one cannot have, with the reason."""

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

    def parts(self) -> tuple[PositionEncoding, ...]:
        """The single encodings inside, in order; one encoding is its own only part."""
        return (self,)

    def check_resizable(self) -> None:
        """Raise ValueError where :meth:`resized` cannot be asked for, before anything else has another size."""
        if self.spec is None:
            raise ValueError(f"{self.name!r} can be resized when it was built by create_encoding('{self.name}', ...)")
        if is_computed(self):
            raise ValueError(
                f"a parameter of {self.name!r} is computed from others, which do not say what it is at another size: "
                "make that permanent first (torch.nn.utils.prune.remove, parametrize.remove_parametrizations)"
            )

    def resized(self, grid: TokenGrid, tied: dict[int, nn.Parameter] | None = None) -> PositionEncoding:
        """The same encoding for another native grid.

        Options are kept, tables are resampled, what is frozen stays so, on the same device and in the same dtype.

        Args:
            tied: parameters resized before, by the ``id`` of what they were; is added to. With the same mapping for all
                encodings of a model, those that share a parameter still do.

        Raises:
            ValueError: it was built without ``create_encoding``, so that its options are not known; a parametrised or
                pruned table.
        """
        self.check_resizable()
        assert self.spec is not None
        spec = {**self.spec, **self.remembered()}
        options = {key: as_tuple(value) for key, value in spec.items() if key != "name"}
        place = placement_of(self)
        with torch.device(place.device):
            new = type(self)(self.num_heads, self.head_dim, grid, **options)
        new.spec = spec
        new.to(place.dtype)
        for name, child in self.named_children():  # with adapters, hooks and parametrisations that were put on it
            setattr(new, name, copied(child))
        new.load_state_dict(self.state_dict())
        for name, before in self.named_parameters(remove_duplicate=False):
            parameter = new.get_parameter(name)
            parameter.requires_grad_(before.requires_grad)
            if tied is not None:
                owner, _, own = name.rpartition(".")
                setattr(new.get_submodule(owner), own, tied.setdefault(id(before), parameter))
        return new.train(self.training)

    def has_entry_per_pair(self, q: TokenGrid, k: TokenGrid) -> bool:
        """Whether the terms for these grids have an entry for every pair of tokens; only where the card says so."""
        return self.card.per_pair

    def remembered(self) -> dict[str, Any]:
        """Options that :meth:`resized` hands on beside those of ``spec``."""
        return {}

    def trained_on(self, size: tuple[int, ...]) -> None:
        """Learn of which native size the weights are that are about to be loaded, for formulas that hold it: ``native``
        becomes this size where :meth:`remembered` names it."""
        if "native" in self.remembered() and size != self.native:
            self.native = size
            self.spec = None if self.spec is None else {**self.spec, "native": size}

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
        sizes = lengths if self.offsets_are_halved else [(length + 1) // 2 for length in lengths]
        return tuple(sizes) if len(lengths) == self.grid.ndim else None

    def no_weight_decay(self) -> set[str]:
        """Names of own parameters that weight decay must leave alone; by default all."""
        return {name for name, _ in self.named_parameters()}

    def extra_repr(self) -> str:
        grid = f"{self.grid.size} + {self.grid.num_prefix} prefix" if self.grid.num_prefix else f"{self.grid.size}"
        shown = [f"{key}={value!r}" for key, value in (self.spec or {"name": self.name}).items()]
        shown += [f"heads={self.num_heads}", f"head_dim={self.head_dim}", f"grid={grid}"]
        shown += [f"{name}: {tuple(own.shape)}" for name, own in self.named_parameters(recurse=False)]
        return ", ".join(shown)


def terms_of_tokens(
    encoding: PositionEncoding,
    q: TokenGrid,
    k: TokenGrid,
    device: Device = None,
    *,
    x: Tensor | None,
    x_k: Tensor | None = None,
) -> PositionTerms:
    """Call an encoding with what the tokens hold, where it reads that.

    Args:
        x: what the queries hold, a layer's normed input, (B, Nq, C); None = position alone, for a token of zeros, which
            is the mean of normed ones.
        x_k: the same of the keys, (B, Nk, C).
    """
    if not encoding.card.content:
        return encoding(q, k, device)
    return encoding(q, k, device, x=x, x_k=x_k)


def find_encodings(model: nn.Module) -> Iterator[tuple[str, PositionEncoding]]:
    """Every single encoding inside a model, with its path."""
    for path, module in model.named_modules():
        if isinstance(module, PositionEncoding) and module.parts() == (module,):
            yield path, module


def check_resizable(model: nn.Module) -> None:
    """Raise ValueError where the encodings of a model cannot be given another native grid, before anything is."""
    for module in model.modules():
        if isinstance(module, PositionEncoding):
            module.check_resizable()


def as_tuple(value: Any) -> Any:
    """Lists, which JSON and YAML give, become tuples."""
    return tuple(as_tuple(item) for item in value) if isinstance(value, list) else value


def per_axis(value: int | tuple[int, ...] | None, grid: TokenGrid, *, name: str) -> tuple[int, ...]:
    """Largest offset along each axis, from an option: None is the grid's own (size - 1), an int counts for every axis.

    Raises:
        ValueError: negative, or not one entry per axis.
    """
    if value is None:
        return tuple(size - 1 for size in grid.size)
    distances = tuple(value) if isinstance(value, tuple | list) else (value,) * grid.ndim
    if len(distances) != grid.ndim or any(not isinstance(d, int) or d < 0 for d in distances):
        raise ValueError(f"{name}={value!r} must be an integer >= 0, or one per axis of the grid {grid.size}")
    return distances


def all_but_matrices(encoding: nn.Module) -> set[str]:
    """The parameters of an encoding that weight decay leaves alone where the matrices of its layers decay; these are
    told by their shape, because what stands in place of a layer has other names."""
    return {name for name, own in encoding.named_parameters() if "." not in name or own.ndim < 2}


def at_least_float32(values: Tensor) -> Tensor:
    """Low precision up to float32; float32 and float64 as they are."""
    return values if values.dtype == torch.float32 else values.to(torch.promote_types(values.dtype, torch.float32))


def _warn_of_missing(module: PositionEncoding, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
    """Hook of ``load_state_dict``: with ``strict=False`` nothing keeps random values silently."""
    if module.parts() != (module,):
        return  # each part speaks for itself
    missing = [name for name, _ in module.named_parameters() if prefix + name not in state_dict]
    if missing:
        warnings.warn(
            f"the weights lack {', '.join(missing)} of the position encoding {module.name!r}, which keeps the values "
            "it had",
            stacklevel=2,
        )


def _axes_text(axes: tuple[int, ...]) -> str:
    return ", ".join(map(str, axes[:-1])) + (" or " if len(axes) > 1 else "") + str(axes[-1])
