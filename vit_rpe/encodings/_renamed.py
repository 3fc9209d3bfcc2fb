"""Old names of functions, for one release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vit_rpe.checks import warn_renamed
from vit_rpe.encodings._create import create_encoding
from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.encodings._spec import Spec, parse_specs
from vit_rpe.position.geometry import TokenGrid


def create_position(
    rpe: Spec | Sequence[Spec] | None, num_heads: int, head_dim: int, grid: TokenGrid, **context: Any
) -> PositionEncoding | None:
    """Deprecated: :func:`create_encoding`, which takes a list too."""
    warn_renamed("create_position(...)", "create_encoding(...)")
    specs = parse_specs(rpe)
    return create_encoding(specs, num_heads, head_dim, grid, **context) if specs else None


def encodings_of(position: PositionEncoding | None) -> list[PositionEncoding]:
    """Deprecated: :meth:`PositionEncoding.parts`."""
    warn_renamed("encodings_of(position)", "position.parts()")
    return [] if position is None else list(position.parts())


def is_per_pair(position: PositionEncoding | None) -> bool:
    """Deprecated: ``position.card.per_pair``."""
    warn_renamed("is_per_pair(position)", "position.card.per_pair")
    return position is not None and position.card.per_pair


def resized(encoding: PositionEncoding, grid: TokenGrid) -> PositionEncoding:
    """Deprecated: :meth:`PositionEncoding.resized`."""
    warn_renamed("resized(encoding, grid)", "encoding.resized(grid)")
    return encoding.resized(grid)


def resized_position(position: PositionEncoding, grid: TokenGrid) -> PositionEncoding:
    """Deprecated: :meth:`PositionEncoding.resized`."""
    warn_renamed("resized_position(position, grid)", "position.resized(grid)")
    return position.resized(grid)
