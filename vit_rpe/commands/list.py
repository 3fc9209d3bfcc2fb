"""List the runs below a folder: encoding, data, epochs, accuracy of the best epoch."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vit_rpe.training.checkpoint.runs import RunSummary

__all__ = ["add_arguments", "run"]

HEADINGS = ("run", "model", "encoding", "data", "epochs", "accuracy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", nargs="?", default="runs", metavar="FOLDER", help="where the runs lie; default: runs")
    parser.add_argument("--sort", choices=("name", "accuracy"), default="name", help="accuracy: the best first")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(args: argparse.Namespace) -> None:
    """Print a line for each run."""
    from vit_rpe.data.errors import printable
    from vit_rpe.training.checkpoint.runs import list_runs

    runs = list_runs(args.folder)
    if args.sort == "accuracy":
        runs = sorted(runs, key=lambda one: -1.0 if one.accuracy is None else one.accuracy, reverse=True)
    if args.json:
        for one in runs:
            print(json.dumps({**vars(one), "folder": str(one.folder)}))
        return
    if not runs:
        print(f"no runs in {printable(args.folder)}")
        return
    rows = [HEADINGS, *(_cells(one, printable(one.folder)) for one in runs)]
    widths = [max(len(row[0]) for row in rows)]
    widths += [max(len(row[column]) for row in rows if len(row) > 2) for column in range(1, len(HEADINGS))]
    for row in rows:
        print("  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=False)).rstrip())


def _cells(one: RunSummary, name: str) -> tuple[str, ...]:
    if one.problem is not None:
        return (name, f"cannot be read: {one.problem}")
    accuracy = "" if one.accuracy is None else f"{one.accuracy:.1%}"
    return (name, one.model, one.encoding, one.data, f"{one.epochs} of {one.epochs_planned}", accuracy)
