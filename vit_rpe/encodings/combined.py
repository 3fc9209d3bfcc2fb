"""Several encodings at once: their terms are combined (biases add, visibilities intersect)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from torch import nn

from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.encodings._spec import Spec, create_encoding, parse_specs, resized
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms, combine


class CombinedEncoding(nn.Module):
    """Encodings by name; calling it combines their terms. Parameters are found at ``<name>.<parameter>``."""

    def __init__(self, parts: Sequence[PositionEncoding]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({part.name: part for part in parts})

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        """As :meth:`PositionEncoding.forward`.

        Raises:
            ValueError: the terms exclude each other, for instance two rotations.
        """
        return reduce(combine, [part(q, k, device) for part in encodings_of(self)])

    def reset_parameters(self) -> None:
        """Draw the parameters of every part anew."""
        for part in encodings_of(self):
            part.reset_parameters()

    def zero_(self) -> None:
        """Make every part add nothing; see :meth:`PositionEncoding.zero_`."""
        for part in encodings_of(self):
            part.zero_()

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay must leave alone."""
        return {f"parts.{part.name}.{own}" for part in encodings_of(self) for own in part.no_weight_decay()}


Encoder = PositionEncoding | CombinedEncoding


def create_position(
    rpe: Spec | Sequence[Spec] | None, num_heads: int, head_dim: int, grid: TokenGrid, **context: Any
) -> Encoder | None:
    """Build what a model or layer takes as ``rpe``: nothing, one encoding or several combined.

    Args:
        rpe: None or ``"none"``, a name, a mapping with a name and options, or a list of those.
        context: ``depth_index``, ``depth``, ``device``, ``dtype`` of :func:`create_encoding`.

    Raises:
        ValueError: an unknown name or option, the same encoding twice, or encodings that exclude each other.
    """
    parts = [create_encoding(spec, num_heads, head_dim, grid, **context) for spec in parse_specs(rpe)]
    if len(parts) < 2:
        return parts[0] if parts else None
    combined = CombinedEncoding(parts)
    small = TokenGrid((1,) * grid.ndim)
    combined(small, small, context.get("device"))  # refuse what excludes each other now, not at the first batch
    return combined


def encodings_of(position: Encoder | None) -> list[PositionEncoding]:
    """The single encodings inside, in order."""
    if position is None:
        return []
    modules = [position] if isinstance(position, PositionEncoding) else position.parts.values()
    return [module for module in modules if isinstance(module, PositionEncoding)]


def is_per_pair(position: nn.Module | None) -> bool:
    """Whether some encoding inside has terms with an entry for every pair; not so where positions are constants."""
    if not isinstance(position, (PositionEncoding, CombinedEncoding)):
        return False
    return any(part.card.per_pair for part in encodings_of(position))


def resized_position(position: Encoder, grid: TokenGrid) -> Encoder:
    """The same for another native grid; see :func:`vit_rpe.encodings.resized`."""
    if isinstance(position, PositionEncoding):
        return resized(position, grid)
    return CombinedEncoding([resized(part, grid) for part in encodings_of(position)])
