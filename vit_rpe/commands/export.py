"""Export a checkpoint as ONNX or as a torch.export program, and run the file against the model.

The batch is dynamic. Positions other than the trained size: --img-size for one other size, --dynamic-size for any.
"""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("checkpoint", nargs="?", metavar="CHECKPOINT", help="run folder, or a checkpoint in it")
    parser.add_argument("--checkpoint", dest="named", metavar="DIR_OR_FILE", help="the same, by name")
    parser.add_argument("--format", default="onnx", metavar="NAME", help="onnx (default) or torch_export")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="default: model.onnx or model.pt2 beside the weights"
    )
    parser.add_argument("--img-size", type=int, nargs="+", metavar="N", help="image side, or height and width")
    parser.add_argument("--dynamic-size", action="store_true", help="height and width may differ from call to call")


def run(arguments: argparse.Namespace) -> int:
    """Export, compare, and print one line.

    Raises:
        ValueError: no checkpoint, a bad option, or a model that cannot be exported this way.
        RuntimeError: the file does not compute what the model computes.
    """
    from vit_rpe.checks import unknown_name
    from vit_rpe.commands.evaluate import image_size
    from vit_rpe.models.export import FORMATS, export_model
    from vit_rpe.models.vision.vit import VisionTransformer
    from vit_rpe.training.checkpoint.checkpoint import load_checkpoint

    if None not in (arguments.checkpoint, arguments.named):
        raise ValueError(f"two checkpoints: {arguments.checkpoint} and --checkpoint {arguments.named}")
    given = arguments.checkpoint or arguments.named
    if given is None:
        raise ValueError("export needs a checkpoint: vit-rpe export CHECKPOINT --format onnx")
    if arguments.format not in FORMATS:
        raise unknown_name("format", arguments.format, FORMATS)
    loaded = load_checkpoint(given, img_size=image_size(arguments.img_size))
    if not isinstance(loaded.model, VisionTransformer):
        raise ValueError(f"export takes vision transformers of this package, not {loaded.info.model_name}")
    path = arguments.output or loaded.folder / f"model{FORMATS[arguments.format]}"
    if path.is_dir():
        raise ValueError(f"--output {path} is a folder: name the file to write")
    difference = export_model(loaded.model, path, file_format=arguments.format, dynamic_size=arguments.dynamic_size)
    sizes = "any height and width" if arguments.dynamic_size else "x".join(map(str, loaded.model.patch_embed.img_size))
    print(f"wrote {path}: any batch, {sizes}; logits differ from the model's by at most {difference:.1e}")
    return 0
