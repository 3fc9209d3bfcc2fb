"""Name the most likely classes of images, with the preprocessing that the checkpoint was trained with."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files, or folders of them")
    parser.add_argument("--checkpoint", required=True, metavar="DIR_OR_FILE", help="run folder, or a checkpoint in it")
    parser.add_argument("--top", type=int, default=5, metavar="K", help="how many classes per image (default: 5)")
    parser.add_argument(
        "--img-size", type=int, nargs="+", metavar="N", help="image side, or height and width; default: the model's"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="images per step (default: 32)")
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def image_files(words: list[str]) -> list[Path]:
    """The files named, folders replaced by the images in them.

    Raises:
        ValueError: a path does not exist, or a folder holds no image.
    """
    from PIL import Image

    known = Image.registered_extensions()
    files: list[Path] = []
    for path in map(Path, words):
        if not path.exists():
            raise ValueError(f"no such image: {path}")
        found = [path] if path.is_file() else [p for p in sorted(path.rglob("*")) if p.suffix.lower() in known]
        if not found:
            raise ValueError(f"no images in {path}")
        files += found
    return files


def run(args: argparse.Namespace) -> int:
    """Predict and print; a file that cannot be read is named at the end, and makes the status 1."""
    import torch

    from vit_rpe.commands.evaluate import choose_device, image_size
    from vit_rpe.data.errors import BadImageError
    from vit_rpe.training.checkpoint.checkpoint import load_checkpoint

    if args.top < 1 or args.batch_size < 1:
        raise ValueError(f"--top and --batch-size must be at least 1, got {args.top} and {args.batch_size}")
    files = image_files(args.images)
    loaded = load_checkpoint(args.checkpoint, img_size=image_size(args.img_size))
    device = choose_device(args.device)
    model = loaded.model.to(device)
    longest = max(len(str(file)) for file in files)
    unreadable: list[BadImageError] = []
    for start in range(0, len(files), args.batch_size):
        part, pixels = [], []
        for file in files[start : start + args.batch_size]:
            try:
                pixels.append(loaded.preprocessing(file))
                part.append(file)
            except BadImageError as error:
                unreadable.append(error)
        if not part:
            continue
        images = torch.stack(pixels)
        with torch.no_grad():
            chances = model(images.to(device)).float().softmax(dim=1).cpu()
        values, classes = chances.topk(min(args.top, chances.shape[1]), dim=1)
        for file, row, numbers in zip(part, values.tolist(), classes.tolist(), strict=True):
            found = [(loaded.class_names[number], chance) for number, chance in zip(numbers, row, strict=True)]
            if args.json:
                classes_found = [{"class": name, "probability": chance} for name, chance in found]
                print(json.dumps({"image": str(file), "classes": classes_found}))
            else:
                print(f"{file!s:<{longest}}  " + "  ".join(f"{name} {chance:.1%}" for name, chance in found))
    for fault in unreadable:
        print(f"error: {fault}", file=sys.stderr)
    return int(bool(unreadable))
