"""Write an explorer: one HTML file in which a person points at a patch and sees where it looks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from vit_rpe.commands._inputs import load_images
from vit_rpe.commands._model import NamedModel, told_of_size
from vit_rpe.commands._named_model import add_model_arguments, load_model
from vit_rpe.commands._options import add_output, numbers

__all__ = ["add_arguments", "run"]

LARGEST_FILE = 10_000_000
"""Bytes of a page that still opens at once; beyond it numbers are rounded more."""
FEWER_BITS = (7, 6)
WHERE_BITS_HELP = 1.4
"""Pages of more than so many times the largest file stay larger with fewer bits too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_arguments(parser)
    parser.add_argument("--layers", metavar="N,...", help="such as 0,3,6-8; default: all")
    add_output(parser, default="explorer.html", metavar="FILE", help="the page", once="--out")


def run(args: argparse.Namespace) -> None:
    """Record the model on the images and write the page."""
    import torch

    from vit_rpe.viz import record
    from vit_rpe.viz.explorer.write import explorer_page

    path = Path(args.output)
    if path.is_dir():
        raise ValueError(f"--output {path} is a folder: name the file to write")
    named = load_model(args)
    inputs, pixels, names = load_images(named, args.image)
    with told_of_size(named), torch.no_grad(), record(named.model) as seen:
        scores = named.model(inputs)
    layers, note = numbers(args.layers, "layer", len(seen)), ""
    given: dict[str, Any] = {"names": names, "title": named.title, "captions": _captions(named, scores)}
    page = explorer_page(seen, pixels, layers=layers, **given)
    for bits in FEWER_BITS:
        if not LARGEST_FILE < len(page) <= LARGEST_FILE * WHERE_BITS_HELP:
            break
        page = explorer_page(seen, pixels, layers=layers, bits=bits, **given)
        note = f"\nq and k are rounded to {bits} bits instead of 8 to keep the file small: maps are less exact"
    if len(page) > LARGEST_FILE:
        note += (
            f"\nthe file is larger than {LARGEST_FILE / 1e6:g} MB: fewer images, fewer --layers or a smaller "
            "--img-size make it smaller"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    print(f"{path}  {path.stat().st_size / 1e6:.1f} MB, {len(names)} images, {len(layers or seen.names)} layers{note}")


def _captions(named: NamedModel, scores: object) -> list[str] | None:
    """The most likely class of each image, where the classes have names."""
    import torch

    if named.class_names is None or not isinstance(scores, torch.Tensor) or scores.ndim != 2:
        return None
    values, classes = scores.float().softmax(dim=1).max(dim=1)
    found = zip(classes.tolist(), values.tolist(), strict=True)
    return [f"predicted: {named.class_names[number]}, {value:.0%}" for number, value in found]
