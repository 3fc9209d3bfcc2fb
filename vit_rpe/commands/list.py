"""List the runs below a folder: encoding, data, epochs, accuracy of the best epoch.

With --shipped, list the trained models that come with the package instead: --checkpoint takes their names, and
timm.create_model does with pretrained=True.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vit_rpe.training.checkpoint.runs import RunSummary

__all__ = ["add_arguments", "run"]

HEADINGS = ("run", "model", "encoding", "data", "epochs", "accuracy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="where the runs lie; default: runs")
    parser.add_argument("--shipped", action="store_true", help="instead: the trained models that come with the package")
    parser.add_argument("--sort", choices=("name", "accuracy"), default="name", help="accuracy: the best first")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(args: argparse.Namespace) -> None:
    """Print a line for each run."""
    from vit_rpe.data.errors import printable
    from vit_rpe.training.checkpoint.runs import list_runs

    if args.shipped:
        if args.folder is not None:
            raise ValueError(f"--shipped lists what comes with the package, not what lies in {args.folder}")
        _list_shipped(args)
        return
    folder = "runs" if args.folder is None else args.folder
    runs = list_runs(folder)
    if args.sort == "accuracy":
        runs = sorted(runs, key=lambda one: -1.0 if one.accuracy is None else one.accuracy, reverse=True)
    if args.json:
        for one in runs:
            print(json.dumps({**vars(one), "folder": str(one.folder)}))
        return
    if not runs:
        print(f"no runs in {printable(folder)}")
        return
    _print_columns([HEADINGS, *(_cells(one, printable(one.folder)) for one in runs)])


def _list_shipped(args: argparse.Namespace) -> None:
    from vit_rpe.models.shipped import shipped_models
    from vit_rpe.training.checkpoint.runs import encoding_words

    models = list(shipped_models().values())
    if args.sort == "accuracy":
        models.sort(key=lambda one: -one.results["top1"])
    if args.json:
        for one in models:
            told = {"name": one.name, "encoding": one.args["rpe"], "data": one.data, **one.results}
            print(json.dumps({**told, "folder": str(one.folder)}))
        return
    rows = [
        (one.name, encoding_words(one.args["rpe"]), one.data, f"{one.results['top1']:.1%}", _interval(one.results))
        for one in models
    ]
    _print_columns([("trained model", "encoding", "data", "accuracy", "95 % interval"), *rows])


def _interval(results: dict[str, float]) -> str:
    return f"{results['top1_low']:.1%} to {results['top1_high']:.1%}"


def _print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """The first row has every column; a shorter row ends in a sentence."""
    widths = [max(len(row[0]) for row in rows)]
    widths += [max(len(row[column]) for row in rows if len(row) > 2) for column in range(1, len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=False)).rstrip())


def _cells(one: RunSummary, name: str) -> tuple[str, ...]:
    if one.problem is not None:
        return (name, f"cannot be read: {one.problem}")
    accuracy = "" if one.accuracy is None else f"{one.accuracy:.1%}"
    return (name, one.model, one.encoding, one.data, f"{one.epochs} of {one.epochs_planned}", accuracy)
