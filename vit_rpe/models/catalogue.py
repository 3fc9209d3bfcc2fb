"""The table of encodings, read from the registry: for the command line and the documentation."""

from __future__ import annotations

from typing import NamedTuple

from vit_rpe.attention import kernels_for
from vit_rpe.encodings import create_encoding, encoding_class, list_encodings
from vit_rpe.position.geometry import TokenGrid

VIT_SMALL = {"num_heads": 6, "head_dim": 64, "grid": TokenGrid((14, 14)), "depth": 12}


class Row(NamedTuple):
    """One encoding as a person chooses it. ``parameters`` is the total over the 12 layers of a ViT-S/16 at 224 px."""

    name: str
    paper: str
    adds: str
    parameters: int
    kernels: str
    extrapolation: str


def catalogue() -> list[Row]:
    """A row for every registered encoding, at its default options."""
    return [_row(name) for name in list_encodings()]


def markdown_table(rows: list[Row]) -> str:
    """The rows as a Markdown table, as docs/encodings.md shows it."""
    head = "| `rpe=` | paper | adds | parameters in ViT-S/16 | kernels | at another resolution |"
    lines = [head, "|---|---|---|---:|---|---|"]
    lines += [
        f"| `{row.name}` | {row.paper or '—'} | {row.adds or 'nothing'} | {row.parameters:,} | {row.kernels} "
        f"| {row.extrapolation} |"
        for row in rows
    ]
    return "\n".join(lines)


def _row(name: str) -> Row:
    card = encoding_class(name).card
    shape = (VIT_SMALL["num_heads"], VIT_SMALL["head_dim"], VIT_SMALL["grid"])
    encoding = create_encoding(name, *shape, device="meta")  # type: ignore[arg-type]
    per_layer = sum(parameter.numel() for parameter in encoding.parameters())
    return Row(
        name=name,
        paper=card.paper,
        adds=", ".join(card.adds),
        parameters=per_layer * VIT_SMALL["depth"],  # type: ignore[operator]
        kernels=", ".join(_kernels(name)),
        extrapolation=card.extrapolation,
    )


def _kernels(name: str) -> list[str]:
    """The kernels that can express the terms of an encoding, asked of the kernels themselves."""
    grid = TokenGrid((2, 3))
    return kernels_for(create_encoding(name, 6, 64, grid)(grid, grid))
