"""DeiT with iRPE, arXiv 2107.14222; names as in github.com/microsoft/Cream, iRPE/DeiT-with-iRPE.

Tables are (1, D, rows) on keys and queries, (1, rows, D) on values, or a bias (H or 1, rows); the last row is that of
the class token. Rows of ``euclidean`` and ``quantization`` run from -beta to beta, of which half occurs. Vectors on
queries are indexed by key minus query there: their rows are mirrored here. A file does not tell method and ratio: the
number of rows is that of one of the recipes that the code registers, or ``rpe`` says it.

Legend: D head width, H heads, R rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vit_rpe.encodings import Spec, parse_specs
from vit_rpe.models.exchange.published.found import Found, square_grid, vision_transformer
from vit_rpe.models.exchange.weights import Placed, unwrap

NAME = "iRPE-DeiT"
MARK = re.compile(r"^blocks\.0\.attn\.rpe_[qkv]\.(rp_(rows|cols)\.)?lookup_table_(weight|bias)$")
TABLE = re.compile(r"^blocks\.(\d+)\.attn\.rpe_([qkv])\.(?:rp_(rows|cols)\.)?lookup_table_(weight|bias)$")
RECIPES: dict[tuple[bool, int], tuple[str, float]] = {
    (False, 50): ("product", 1.9),
    (False, 82): ("euclidean", 20.0),
    (False, 134): ("quantization", 33.0),
    (True, 82): ("cross", 20.0),
}
"""Method and ratio by whether rows and columns have tables of their own, and by R."""


def read(content: Mapping[str, Any], rpe: Spec | Sequence[Spec] | None, kwargs: Mapping[str, Any]) -> Found:
    """The model of a file.

    Raises:
        ValueError: a distilled model, tables that fit no recipe or not the one in ``rpe``, or one for every head.
    """
    state = unwrap(content)
    if "dist_token" in state:
        raise ValueError(f"this {NAME} is distilled: it has a second head, which ours has not")
    tables = {key: value for key, value in state.items() if TABLE.match(key)}
    weights = {key: value for key, value in state.items() if key not in tables}
    dim = weights["patch_embed.proj.weight"].shape[0]
    spec = _spec(tables, rpe)
    encodings: dict[Placed, Tensor] = {}
    for key, value in tables.items():
        layer, side, axis, kind = TABLE.match(key).groups()  # type: ignore[union-attr]
        ending = {None: "", "rows": "_h", "cols": "_w"}[axis]
        rows = carried_over(_rows(value, side, kind), side, spec["method"])
        placed = Placed("irpe", f"table{'' if kind == 'bias' else f'_{side}'}{ending}", int(layer))
        encodings[placed] = encodings[placed] + rows if placed in encodings else rows  # bias on q and k: their sum
    width = next(encodings[key].shape[1] for key in encodings) if spec["mode"] == "contextual" else None
    heads = int(kwargs.get("num_heads", 0)) or _heads(dim, width, tables)
    if spec["mode"] == "bias":
        encodings = {key: rows.T.expand(heads, -1).clone() for key, rows in encodings.items()}
    return vision_transformer(
        weights,
        spec,
        square_grid(weights["pos_embed"].shape[1] - 1, NAME),
        num_heads=heads,
        encodings=encodings,
    )


def _spec(tables: Mapping[str, Tensor], rpe: Spec | Sequence[Spec] | None) -> dict[str, Any]:
    matches = [found for key in tables if (found := TABLE.match(key)) is not None]
    cross, kinds = matches[0][3] is not None, {found[4] for found in matches}
    first = tables[matches[0].string]
    count = first.shape[1] if matches[0][4] == "bias" or matches[0][2] == "v" else first.shape[2]
    given: dict[str, Any] = {}
    if rpe is not None:
        given = next((dict(spec) for spec in parse_specs(rpe) if spec["name"] == "irpe"), {})
    method, ratio = RECIPES.get((cross, count), (None, None))
    method, ratio = given.get("method", method), given.get("ratio", ratio)
    if method is None or ratio is None:
        raise ValueError(
            f"tables of {count} rows are of none of the recipes of {NAME}: say the method and the ratio they were made "
            "with, rpe={'name': 'irpe', 'method': ..., 'ratio': ...}"
        )
    reach = int(2 * ratio)
    expected = 1 + ((2 * reach + 1) ** 2 if method == "product" else 2 * reach + 1)
    if count != expected or cross != (method == "cross"):
        raise ValueError(f"method={method!r} with ratio={ratio} needs tables of {expected} rows, the file has {count}")
    spec = {"name": "irpe", "method": method, "ratio": ratio, "mode": "bias" if kinds == {"bias"} else "contextual"}
    if kinds == {"weight"}:
        spec["on"] = tuple(side for side in "qkv" if any(found[2] == side for found in matches))
    return spec


def _rows(value: Tensor, side: str, kind: str) -> Tensor:
    """A table as (R, D), a bias as (R, H)."""
    if kind == "bias":
        return value.T
    if value.shape[0] != 1:
        raise ValueError(f"this {NAME} has vectors for each of {value.shape[0]} heads; those of ours are shared by all")
    return value[0] if side == "v" else value[0].T


def carried_over(rows: Tensor, side: str, method: str) -> Tensor:
    """Rows (R, ...) in our order: what cannot occur left out, those on queries mirrored."""
    grid, of_class = rows[:-1], rows[-1:]
    if method in ("euclidean", "quantization"):
        grid = grid[len(grid) // 2 :]
    elif side == "q":
        grid = grid.flip(0)
    return torch.cat([grid, of_class])


def _heads(dim: int, width: int | None, tables: Mapping[str, Tensor]) -> int:
    heads = dim // width if width is not None else next(iter(tables.values())).shape[0]
    if heads == 1 and width is None:
        raise ValueError("a bias shared by the heads does not tell how many there are: say num_heads=")
    return heads
