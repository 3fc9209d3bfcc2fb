"""Write an explorer: one HTML file in which a person points at a patch and sees where it looks."""

from __future__ import annotations

import argparse
from pathlib import Path

from vit_rpe.commands._inputs import load_images
from vit_rpe.commands._named_model import NamedModel, add_model_arguments, load_model
from vit_rpe.commands._options import add_output

__all__ = ["add_arguments", "run"]

LARGEST_FILE = 10_000_000
"""Bytes of a page that still opens at once; beyond it numbers are rounded more."""
FEWER_BITS = (7, 6)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_arguments(parser)
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
    with torch.no_grad(), record(named.model) as seen:
        scores = named.model(inputs)
    captions, note = _captions(named, scores), ""
    page = explorer_page(seen, pixels, names=names, title=named.title, captions=captions)
    for bits in FEWER_BITS:
        if len(page.encode()) <= LARGEST_FILE:
            break
        page = explorer_page(seen, pixels, names=names, title=named.title, captions=captions, bits=bits)
        note = f"\nq and k are rounded to {bits} bits instead of 8 to keep the file small: maps are less exact"
    if len(page.encode()) > LARGEST_FILE:
        note += (
            f"\nthe file is larger than {LARGEST_FILE / 1e6:g} MB: fewer images or a smaller --img-size make it smaller"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    print(f"{path}  {path.stat().st_size / 1e6:.1f} MB, {len(names)} images, {len(seen)} layers{note}")


def _captions(named: NamedModel, scores: object) -> list[str] | None:
    """The most likely class of each image, where the classes have names."""
    import torch

    if named.class_names is None or not isinstance(scores, torch.Tensor) or scores.ndim != 2:
        return None
    values, classes = scores.float().softmax(dim=1).max(dim=1)
    found = zip(classes.tolist(), values.tolist(), strict=True)
    return [f"predicted: {named.class_names[number]}, {value:.0%}" for number, value in found]
