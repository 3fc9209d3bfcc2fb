"""What attention is handed, compared before any kernel runs: shapes of q, k, v and of every part of the terms.

Legend: B batch, H heads, D head width, Nq/Nk query/key tokens with prefix, Sq/Sk tokens of one axis, R relations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.masks import check_radius
from vit_rpe.position.offset_tables import offset_range
from vit_rpe.position.terms import PositionTerms, RelativeVectors


class Length(NamedTuple):
    """How long an axis has to be, and whether 1 will do for all."""

    name: str
    value: int
    or_one: bool = False

    def fits(self, found: int) -> bool:
        # what is no number, such as a symbol of an export, is not compared
        known = type(found) is int and type(self.value) is int
        return not known or found == self.value or (self.or_one and found == 1)

    def __str__(self) -> str:
        return f"{self.name} {self.value}" + (" or 1" if self.or_one and self.value != 1 else "")


class Call(NamedTuple):
    """The sizes of one attention call."""

    batch: Length
    heads: Length
    queries: Length
    keys: Length


def check_call(q: Tensor, k: Tensor, v: Tensor | None, terms: PositionTerms) -> None:
    """Raise ValueError unless q, k, v and all terms belong together; nothing is compared under compile and export."""
    if torch.compiler.is_compiling():
        return
    if q.ndim != 4:
        raise ValueError(f"q must be (batch, heads, queries, width), got {tuple(q.shape)}")
    lead = Length("batch", q.shape[0]), Length("heads", q.shape[1])
    _check("k", k, (*lead, Length("keys", k.shape[-2]), Length("width", q.shape[3])))
    if v is not None:
        _check("v", v, (*lead, Length("keys", k.shape[2]), Length("width", v.shape[-1])))
    batch, heads, queries, keys = (
        Length(name, size, or_one=True)
        for name, size in (("batch", q.shape[0]), ("heads", q.shape[1]), ("queries", q.shape[2]), ("keys", k.shape[2]))
    )
    call = Call(batch, heads, queries, keys)
    for name, values in (("bias", terms.bias), ("visible", terms.visible)):
        if values is not None:
            _check(f"terms.{name}", values, call, least=3 if name == "bias" else 2)
    for name, x, turn in (("rotate_q", q, terms.rotate_q), ("rotate_k", k, terms.rotate_k)):
        for part in turn or ():
            tokens, pairs = Length("tokens", x.shape[2]), Length("half the width", x.shape[3] // 2)
            _check(f"terms.{name}", part, (batch, heads, tokens, pairs), least=2)
    for name, x, polar in (("polar_q", q, terms.polar_q), ("polar_k", k, terms.polar_k)):
        for part in polar or ():
            wanted = batch, heads, Length("tokens", x.shape[2], or_one=True), Length("width", x.shape[3])
            _check(f"terms.{name}", part, wanted, least=3)
    for name, x, blocks in (("blocks_q", q, terms.blocks_q), ("blocks_k", k, terms.blocks_k)):
        if blocks is not None:
            size = blocks.shape[-1]
            parts = Length(f"width / {size}", x.shape[3] // size), Length("block", size), Length("block", size)
            _check(f"terms.{name}", blocks, (batch, heads, Length("tokens", x.shape[2]), *parts), least=5)
    _check_movement(terms)
    if terms.grids is not None:
        for name, grid, count in zip(("q", "k"), terms.grids, (q.shape[2], k.shape[2]), strict=True):
            if not Length("tokens", grid.num_tokens).fits(count):
                raise ValueError(f"{name} has {count} tokens, and the terms are for {grid.num_tokens}: {grid}")
    for left, right in terms.features:
        channels = Length("channels", left.shape[-1])
        for side, values, count in (("left", left, q.shape[2]), ("right", right, k.shape[2])):
            _check(f"terms.features' {side}", values, (batch, heads, Length("tokens", count), channels))
    _check_tables(terms, heads)
    widths = ("on_query", q.shape[3]), ("on_key", k.shape[3]), ("on_value", None if v is None else v.shape[3])
    for name, width in widths:
        for vectors in getattr(terms, name):
            _check_vectors(f"terms.{name}", vectors, width, call, terms)


def _check_movement(terms: PositionTerms) -> None:
    """One way of moving, for both sides; a rotation may leave one side as it is."""
    ways = {
        "rotate": (terms.rotate_q, terms.rotate_k),
        "blocks": (terms.blocks_q, terms.blocks_k),
        "polar": (terms.polar_q, terms.polar_k),
    }
    found = [name for name, sides in ways.items() if any(side is not None for side in sides)]
    if len(found) > 1:
        raise ValueError(f"terms move queries and keys in one way at most, got {' and '.join(found)}")
    for name in found:
        if name != "rotate" and any(side is None for side in ways[name]):
            raise ValueError(f"terms.{name}_q and terms.{name}_k come together, got one of them")


def _check_tables(terms: PositionTerms, heads: Length) -> None:
    """The parts that are tables over axes and offsets."""
    if terms.prefix_bias is not None:
        _check("terms.prefix_bias", terms.prefix_bias, (heads, Length("kinds of pairs", 3)))
    if terms.geometric_mask is not None:
        q, _ = _grids("geometric_mask", terms)
        if terms.geometric_mask.window is not None:
            check_radius(terms.geometric_mask.window, q)
    for bias in terms.axis_bias:
        _check("terms.axis_bias", bias.bias, (heads, *_axis("axis_bias", bias.axis, terms)))
    hidden = () if terms.offset_visible is None else (terms.offset_visible,)
    for name, tables in (("offset_bias", terms.offset_bias), ("offset_visible", hidden)):
        for table in tables:
            q, k = _grids(name, terms)
            offsets = (Length("offsets", offset_range(q, k, axis)[1]) for axis in range(q.ndim))
            _check(f"terms.{name}", table, (heads, *offsets))


def _check_vectors(name: str, part: RelativeVectors, width: int | None, call: Call, terms: PositionTerms) -> None:
    width = part.table.shape[-1] if width is None else width
    relations = Length("relations", part.table.shape[-2] if part.table.ndim > 1 else 0)
    _check(f"{name}'s table", part.table, (call.heads, relations, Length("width", width)))
    if part.axis is not None:
        _check(f"{name}'s index", part.index, _axis(name, part.axis, terms))
    else:
        rows = call.queries._replace(or_one=False), call.keys._replace(or_one=False)
        _check(f"{name}'s index", part.index, (call.batch, *rows), least=2)


def _axis(name: str, axis: int, terms: PositionTerms) -> tuple[Length, Length]:
    q, k = _grids(name, terms)
    if not 0 <= axis < q.ndim:
        raise ValueError(f"terms.{name} is along axis {axis}, and the grids have {q.ndim} axes: {q.size}")
    return Length("queries of the axis", q.size[axis]), Length("keys of the axis", k.size[axis])


def _grids(name: str, terms: PositionTerms) -> tuple[TokenGrid, TokenGrid]:
    if terms.grids is None:
        raise ValueError(f"terms.{name} is told by the grids: set PositionTerms.grids")
    return terms.grids


def _check(name: str, values: Tensor, wanted: Sequence[Length], *, least: int | None = None) -> None:
    """Axes are compared from the last; those in front may be missing, down to ``least`` of them."""
    shape = tuple(values.shape)
    if not (least or len(wanted)) <= len(shape) <= len(wanted) or not all(
        length.fits(found) for length, found in zip(reversed(wanted), reversed(shape), strict=False)
    ):
        fewer = "" if least is None else f", the first {len(wanted) - least} optional"
        raise ValueError(f"{name} must be ({', '.join(map(str, wanted))}){fewer}; got {shape}")
