"""List every relative position encoding: paper, what it adds, parameters, kernels, other resolutions."""

from __future__ import annotations

import argparse
import json

from vit_rpe.catalogue import Row, catalogue, markdown_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``vit-rpe encodings``."""
    parser.add_argument("--format", choices=("table", "markdown", "json"), default="table", help="how to print it")


def run(args: argparse.Namespace) -> None:
    """Print the table."""
    rows = catalogue()
    if args.format == "json":
        print(json.dumps([row._asdict() for row in rows], indent=2))
    elif args.format == "markdown":
        print(markdown_table(rows))
    else:
        _print_table(rows)


def _print_table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Relative position encodings (parameters: ViT-S/16 at 224 px, all layers)", expand=False)
    for heading in ("rpe=", "paper", "adds"):
        table.add_column(heading)
    table.add_column("parameters", justify="right")
    for heading in ("kernels", "at another resolution"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row.name, row.paper, row.adds, f"{row.parameters:,}", row.kernels, row.elsewhere)
    Console().print(table)
