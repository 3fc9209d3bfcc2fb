"""Export a checkpoint as ONNX or as a torch.export program, and run the file against the model.

The batch is dynamic. Positions other than the trained size: --img-size for one other size, --dynamic-size for any.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from vit_rpe.checks import check_choice
from vit_rpe.commands._options import add_checkpoint, add_img_size, image_size

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("checkpoint", nargs="?", metavar="CHECKPOINT", help="run folder, or a checkpoint in it")
    add_checkpoint(parser, required=False, dest="named")
    parser.add_argument("--format", default="onnx", metavar="NAME", help="onnx (default) or torch_export")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="default: model.onnx or model.pt2 beside the weights"
    )
    add_img_size(parser)
    parser.add_argument("--dynamic-size", action="store_true", help="height and width may differ from call to call")


def run(args: argparse.Namespace) -> None:
    """Export, compare, and print one line.

    Raises:
        ValueError: no checkpoint, a bad option, or a model that cannot be exported this way.
        RuntimeError: the file does not compute what the model computes.
    """
    from vit_rpe.models.export import FORMATS, export_model
    from vit_rpe.training.checkpoint.checkpoint import load_checkpoint

    if None not in (args.checkpoint, args.named):
        raise ValueError(f"two checkpoints: {args.checkpoint} and --checkpoint {args.named}")
    given = args.checkpoint or args.named
    if given is None:
        raise ValueError("export needs a checkpoint: vit-rpe export CHECKPOINT --format onnx")
    check_choice("format", args.format, FORMATS)
    loaded = load_checkpoint(given, img_size=image_size(args.img_size))
    size = loaded.preprocessing.img_size
    images = (loaded.preprocessing.in_chans, *size)
    path = args.output or loaded.folder / f"model{FORMATS[args.format]}"
    if path.is_dir():
        raise ValueError(f"--output {path} is a folder: name the file to write")
    difference = export_model(
        loaded.model, path, file_format=args.format, images=images, dynamic_size=args.dynamic_size
    )
    sizes = "any height and width" if args.dynamic_size else "x".join(map(str, size))
    print(f"wrote {path}: any batch, {sizes}; logits differ from the model's by at most {difference:.1e}")
