"""Name the most likely classes of images, with the preprocessing that the checkpoint was trained with."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.checks import check_count
from vit_rpe.commands._inputs import named_images
from vit_rpe.commands._options import add_checkpoint, add_device, add_img_size, choose_device, image_size

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vit_rpe.data import BadImageError
    from vit_rpe.training.checkpoint.checkpoint import LoadedCheckpoint

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files, or folders of them")
    add_checkpoint(parser)
    parser.add_argument("--top", type=int, default=5, metavar="K", help="how many classes per image (default: 5)")
    add_img_size(parser)
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="images per step (default: 32)")
    add_device(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(args: argparse.Namespace) -> int:
    """Predict and print; a file that cannot be read is named at the end, and makes the status 1."""
    from vit_rpe.data.errors import printable
    from vit_rpe.training.checkpoint.checkpoint import load_checkpoint

    check_count("--top", args.top)
    check_count("--batch-size", args.batch_size)
    device, size = choose_device(args.device), image_size(args.img_size)
    files = named_images(args.images)
    loaded = load_checkpoint(args.checkpoint, img_size=size)
    loaded.model.to(device)
    longest = max(len(printable(file)) for file in files)
    unreadable: list[BadImageError] = []
    for file, chances in _chances(loaded, files, args.batch_size, device, unreadable):
        values, classes = chances.topk(min(args.top, len(chances)))
        names = loaded.class_names or [str(number) for number in range(len(chances))]
        found = [(names[number], chance) for number, chance in zip(classes.tolist(), values.tolist(), strict=True)]
        if args.json:
            classes_found = [{"class": name, "probability": chance} for name, chance in found]
            print(json.dumps({"image": printable(file), "classes": classes_found}))
        else:
            print(f"{printable(file):<{longest}}  " + "  ".join(f"{name} {chance:.1%}" for name, chance in found))
    for fault in unreadable:
        print(f"error: {fault}", file=sys.stderr)
    return int(bool(unreadable))


def _chances(
    loaded: LoadedCheckpoint, files: list[Path], batch_size: int, device: torch.device, unreadable: list[BadImageError]
) -> Iterator[tuple[Path, Tensor]]:
    """The probabilities (classes,) of each file; what cannot be read goes to ``unreadable``."""
    import torch

    from vit_rpe.data import BadImageError
    from vit_rpe.data.errors import printable

    for start in range(0, len(files), batch_size):
        read, pixels = [], []
        for file in files[start : start + batch_size]:
            try:
                pixels.append(loaded.preprocessing(file))
                read.append(file)
            except BadImageError as error:
                unreadable.append(error)
        if read:
            with torch.no_grad():
                logits = loaded.model(torch.stack(pixels).to(device))
            chances = logits.float().softmax(dim=1).cpu()
            for file, without in zip(read, chances.isnan().any(dim=1).tolist(), strict=True):
                if without:
                    raise ValueError(f"the model's answer is not a number for {printable(file)}")
            yield from zip(read, chances, strict=True)
