"""Write an explorer: one HTML file in which a person points at a patch and sees where it looks."""

from __future__ import annotations

import argparse
from pathlib import Path

from vit_rpe.commands._subject import Subject, add_subject_arguments, load_images, load_subject

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_subject_arguments(parser)
    parser.add_argument("--out", default="explorer.html", metavar="FILE", help="default: explorer.html")


def run(args: argparse.Namespace) -> None:
    """Record the model on the images and write the page."""
    import torch

    from vit_rpe.viz import record
    from vit_rpe.viz.explorer import explorer_page

    subject = load_subject(args)
    inputs, pixels, names = load_images(subject, args.image)
    with torch.no_grad(), record(subject.model) as seen:
        scores = subject.model(inputs)
    page = explorer_page(seen, pixels, names=names, title=subject.title, captions=_captions(subject, scores))
    path = Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    print(f"{path}  {path.stat().st_size / 1e6:.1f} MB, {len(names)} images, {len(seen)} layers")


def _captions(subject: Subject, scores: object) -> list[str] | None:
    """The most likely class of each image, where the classes have names."""
    import torch

    if subject.class_names is None or not isinstance(scores, torch.Tensor) or scores.ndim != 2:
        return None
    values, classes = scores.float().softmax(dim=1).max(dim=1)
    found = zip(classes.tolist(), values.tolist(), strict=True)
    return [f"predicted: {subject.class_names[number]}, {value:.0%}" for number, value in found]
