"""Make a folder to give away from a trained model: weights in half precision, config.json, model card, picture.

The model is measured again with the very files that are written, on the data it was trained for; where those lie is not
written. The folder is a checkpoint like any other: --checkpoint takes it, and so does
timm.create_model("local-dir:FOLDER", pretrained=True).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.commands._inputs import load_images
from vit_rpe.commands._named_model import checkpoint_model
from vit_rpe.commands._options import add_checkpoint, add_output

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["add_arguments", "run"]

LARGEST_HALF = 65504.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_checkpoint(parser)
    add_output(parser, default="shared", metavar="FOLDER", help="the folder; its name is the model's name on the card")
    parser.add_argument("--license", default="other", metavar="NAME", help="of the weights, as on a model hub (other)")
    parser.add_argument("--image", nargs="+", default=[], metavar="PATH", help="for the picture, not validation images")
    parser.add_argument("--note", default="", metavar="TEXT", help="more about the data, for the card")


def run(args: argparse.Namespace) -> None:
    """Write, measure, describe.

    Raises:
        ValueError: no checkpoint, its own folder or one with other files as output, images for a model of text, data
            that are not there.
    """
    import matplotlib  # noqa: F401  (told before anything is computed for it)

    from vit_rpe.evaluation.model_card import model_card, results_of
    from vit_rpe.evaluation.trained_data import evaluate_trained
    from vit_rpe.training.checkpoint.checkpoint import (
        find_checkpoint,
        load_checkpoint,
        read_info,
        read_weights,
        save_checkpoint,
    )

    source, output = find_checkpoint(args.checkpoint), Path(args.output).absolute()
    if output == source.absolute():
        raise ValueError(f"--output {args.output} is the checkpoint itself: name another folder")
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {args.output} is a file: name a folder")
    if output.is_dir() and any(output.iterdir()) and not (output / "model.safetensors").is_file():
        raise ValueError(f"--output {args.output} holds other files, which would be overwritten: name an empty folder")
    info, weights = read_info(source), {name: halved(value) for name, value in read_weights(source).items()}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        save_checkpoint(place, weights, info)
        loaded = load_checkpoint(place)
        picture = loaded.treatment.shows_pictures
        if args.image and not picture:
            raise ValueError("--image is for models of images, this one takes text")
        info.results = results_of(loaded, evaluate_trained(loaded))
        if picture:
            _draw(place, args.image)
        info.data = {key: value for key, value in info.data.items() if key not in ("path", "val_path")}
        save_checkpoint(place, weights, info)
        words = {"licence": args.license, "note": args.note, "picture": picture}
        card = model_card(output.name, source, loaded, info.results, **words)
        (place / "README.md").write_text(card, encoding="utf-8")
        output.mkdir(parents=True, exist_ok=True)
        for file in place.iterdir():
            shutil.copyfile(file, output / file.name)  # a temporary file's permissions are its owner's alone
    size = sum(file.stat().st_size for file in output.iterdir() if file.is_file())
    print(f"{args.output}  {size / 1e6:.2f} MB\n{card.split('## Result')[1].split('##')[0].strip()}")


def halved(value: Tensor) -> Tensor:
    """In half precision, if it is a real number that half precision can hold."""
    import torch

    fits = value.dtype in (torch.float32, torch.float64) and float(value.abs().max()) <= LARGEST_HALF
    return value.half() if fits else value


def _draw(place: Path, images: list[str]) -> None:
    """Where the last layer looks, over these images or, without, validation images."""
    import torch

    from vit_rpe.evaluation.model_card import PICTURE
    from vit_rpe.viz import plot_images, record

    named = checkpoint_model(place, None, torch.device("cpu"))
    inputs, pixels, names = load_images(named, images)
    with torch.no_grad(), record(named.model) as seen:
        named.model(inputs)
    plot_images(seen, pixels, names=names).savefig(place / PICTURE, dpi=70)
