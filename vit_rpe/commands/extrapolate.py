"""Evaluate trained models beyond what they were trained on, draw the curves and write a CSV beside them.

Language models: bits per character at context lengths from half to eight times the trained one, every length scoring
the same characters. Image models: accuracy at other image sizes, and with the image shifted.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vit_rpe.checks import unknown_name
from vit_rpe.commands._options import add_checkpoint, add_device, add_output, choose_device, positive, share

__all__ = ["add_arguments", "run"]

Change = Callable[..., None]
"""Takes a freshly loaded model, and ``length``."""

LENGTHS = (0.5, 1, 2, 4, 8)
SIZES = (0.5, 0.75, 1, 1.5, 2, 3, 4)
SHIFTS = (0, 0.125, 0.25, 0.375, 0.5)
DATE = re.compile(r"\d{4}-\d\d-\d\d_")
FIELDS = ("label", "checkpoint", "changed", "place", "factor", "measure", "result", "perplexity")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_checkpoint(parser, nargs="+")
    parser.add_argument("--label", nargs="+", metavar="TEXT", help="one a checkpoint; default: the experiments' names")
    add_output(parser, default="extrapolation.png", metavar="FILE", help="picture; the CSV lies beside it")
    parser.add_argument(
        "--factors",
        type=positive,
        nargs="+",
        metavar="F",
        help=f"lengths {LENGTHS} or sizes {SIZES}, times the trained",
    )
    parser.add_argument(
        "--shifts", type=share, nargs="*", metavar="S", help=f"shifts of an image {SHIFTS}, times its width"
    )
    parser.add_argument(
        "--resample",
        nargs="*",
        metavar="LABEL",
        help="also draw these language models (no label: all) after set_length, which resamples tables and embeddings",
    )
    parser.add_argument("--without-position", action="store_true", help="also draw each model with position removed")
    parser.add_argument("--data.path", dest="data_path", metavar="PATH", help="where the data lie")
    add_device(parser)


def run(args: argparse.Namespace) -> None:
    """Evaluate, draw, write and print."""
    import matplotlib  # noqa: F401  (told before anything is computed for it)

    from vit_rpe.data import read_treatment
    from vit_rpe.training.checkpoint.checkpoint import find_checkpoint, read_info
    from vit_rpe.viz.plots.extrapolation import plot_extrapolation

    labels = args.label or _labels(args.checkpoint)
    if len(labels) != len(args.checkpoint):
        raise ValueError(f"--label needs one name a checkpoint: {len(args.checkpoint)}, got {len(labels)}")
    if len(set(labels)) < len(labels):
        raise ValueError(f"two models have one label, tell them apart with --label: {', '.join(labels)}")
    for label in args.resample or ():
        if label not in labels:
            raise unknown_name("label in --resample", label, labels)
    folders = [find_checkpoint(path) for path in args.checkpoint]
    kinds = {read_treatment(read_info(folder).preprocessing).kind for folder in folders}
    if len(kinds) > 1:
        raise ValueError("language and image models do not go on one plot: call the command once for each kind")
    if args.resample is not None and kinds == {"images"}:
        raise ValueError("--resample is for language models: an image model is resampled to every size anyway")
    if args.shifts is not None and kinds == {"text"}:
        raise ValueError("--shifts is for image models: a language model is asked at other lengths, --factors")
    rows: list[dict[str, Any]] = []
    for label, folder in zip(labels, folders, strict=True):
        for suffix, change in _variants(args, label).items():
            found = list((_language_rows if kinds == {"text"} else _image_rows)(args, folder, change))
            rows += [{"label": label + suffix, "checkpoint": str(folder), **row} for row in found]
            _print(label + suffix, found)
    output = Path(args.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.with_suffix(".csv").open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    plot_extrapolation(rows).savefig(output, dpi=150)
    print(f"wrote {output} and {output.with_suffix('.csv')}")


def _variants(args: argparse.Namespace, label: str) -> dict[str, Change]:
    """What is drawn of one checkpoint: what its label gets behind it, and what is done to the model first."""
    from vit_rpe.models.exchange.ablate import remove_position

    variants: dict[str, Change] = {"": lambda model, length: None}
    if args.resample is not None and (not args.resample or label in args.resample):
        variants[" resampled"] = lambda model, length: model.set_length(length)
    if args.without_position:
        variants[" without position"] = lambda model, length: remove_position(model)
    return variants


def _language_rows(args: argparse.Namespace, folder: Path, change: Change) -> Iterator[dict[str, Any]]:
    from vit_rpe.evaluation.length_eval import bits_by_length
    from vit_rpe.training.checkpoint.checkpoint import read_info

    native = read_info(folder).preprocessing["length"]
    places = [max(1, round(native * factor)) for factor in args.factors or LENGTHS]
    found = bits_by_length(
        folder, places, device=str(choose_device(args.device)), data_path=args.data_path, change=change
    )
    for place, bits in found.items():
        yield {
            **{"changed": "length", "place": place, "factor": place / native},
            **{"measure": "bits_per_character", "result": bits, "perplexity": 2**bits},
        }


def _image_rows(args: argparse.Namespace, folder: Path, change: Change) -> Iterator[dict[str, Any]]:
    from vit_rpe.evaluation.resolution_eval import accuracy_by_shift, accuracy_by_size
    from vit_rpe.training.checkpoint.checkpoint import load_checkpoint

    loaded = load_checkpoint(folder)
    side = loaded.preprocessing.img_size
    patch = loaded.model.patch_embed.patch_size  # type: ignore[union-attr]
    sizes = {_nearest(side, patch, factor): factor for factor in args.factors or SIZES}  # type: ignore[arg-type]
    shifts = {round(share * side[1]): share for share in (SHIFTS if args.shifts is None else args.shifts)}
    options: dict[str, Any] = {"device": str(choose_device(args.device)), "data_path": args.data_path}
    options["change_model"] = partial(change, length=0)  # images have a size, which the loader gives the model
    for size, accuracy in accuracy_by_size(folder, list(sizes), **options).items():
        place = "x".join(map(str, size)) if isinstance(size, tuple) else size
        factor = size[1] / side[1] if isinstance(size, tuple) else size / side[1]
        yield {"changed": "size", "place": place, "factor": factor, "measure": "accuracy", "result": accuracy}
    for shift, accuracy in accuracy_by_shift(folder, list(shifts), **options).items():
        factor = shift / side[1]
        yield {"changed": "shift", "place": shift, "factor": factor, "measure": "accuracy", "result": accuracy}


def _nearest(side: Sequence[int], patch: Sequence[int], factor: float) -> tuple[int, int]:
    """The (height, width) of whole patches closest to ``factor`` times the trained one."""
    height, width = (max(step, round(length * factor / step) * step) for length, step in zip(side, patch, strict=True))
    return height, width


def _print(label: str, rows: list[dict[str, Any]]) -> None:
    for changed in dict.fromkeys(row["changed"] for row in rows):
        cells = [f"{row['place']}: {row['result']:.3f}" for row in rows if row["changed"] == changed]
        print(f"{label:<24} {rows[0]['measure']} by {changed:<6}  " + "  ".join(cells))


def _labels(paths: Sequence[str]) -> list[str]:
    """A label for each checkpoint: its run folder's name, and the experiment's where that is only a date."""
    from vit_rpe.training.checkpoint.run_folder import find_run

    folders = [(find_run(Path(path)) or Path(path)).resolve() for path in paths]
    labels = [folder.parent.name if DATE.match(folder.name) else folder.name for folder in folders]
    return [
        f"{label} {folder.name}" if labels.count(label) > 1 and label != folder.name else label
        for label, folder in zip(labels, folders, strict=True)
    ]
