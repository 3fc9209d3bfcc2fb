"""The model that ``visualize`` and ``explore`` look at: of a checkpoint, or one of timm's registry by its name."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_rpe.checks import closest
from vit_rpe.commands._options import add_checkpoint, add_device, add_img_size, choose_device, image_size, json_object

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vit_rpe.data import Treatment

__all__ = ["NamedModel", "add_model_arguments", "checkpoint_model", "load_model"]


@dataclass
class NamedModel:
    """A model in eval mode on its device, and what is known of it.

    ``treatment`` prepares its inputs; ``class_names`` is None where classes have no names; ``data`` are the options of
    the data it was trained on, empty where they are not known.
    """

    model: nn.Module
    treatment: Treatment
    title: str
    class_names: list[str] | None
    device: torch.device
    data: dict[str, Any] = field(default_factory=dict)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say which model, and which images."""
    which = parser.add_mutually_exclusive_group(required=True)
    add_checkpoint(which, required=False)
    which.add_argument("--model", metavar="NAME", help="a registered model, ours or any of timm's; random weights")
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="with --model: its published weights (a download, unless they come with the package)",
    )
    parser.add_argument(
        "--model-args", type=json_object, default={}, metavar="JSON", help='with --model: such as \'{"rpe": "rope"}\''
    )
    parser.add_argument(
        "--image",
        nargs="+",
        default=[],
        metavar="PATH",
        help="image files, or folders of them; default: validation images of the checkpoint's run",
    )
    add_img_size(parser)
    add_device(parser)


def load_model(args: argparse.Namespace) -> NamedModel:
    """Build the model.

    Raises:
        ValueError: an unknown model, options that do not fit it, a checkpoint that is damaged or names no classes.
    """
    device, size = choose_device(args.device), image_size(args.img_size)
    if args.checkpoint is None:
        from vit_rpe.models.shipped import shipped_models

        if args.pretrained and not args.model_args and args.model in shipped_models():
            return checkpoint_model(args.model, size, device)
        return _registered(args.model, args.model_args, size, args.pretrained, device)
    if args.pretrained or args.model_args:
        raise ValueError("--pretrained and --model-args go with --model: a checkpoint knows its weights and arguments")
    return checkpoint_model(args.checkpoint, size, device)


def checkpoint_model(path: str | Path, size: tuple[int, int] | None, device: torch.device) -> NamedModel:
    """The model of a checkpoint.

    Raises:
        ValueError: no checkpoint there, one that is damaged or names no classes, or a size the model refuses.
    """
    from vit_rpe.training.checkpoint.checkpoint import load_checkpoint

    loaded = load_checkpoint(path, img_size=size)
    if not loaded.class_names:
        raise ValueError(f"{loaded.folder / 'config.json'} has no class names: train or save the checkpoint with them")
    return NamedModel(
        loaded.model.to(device).eval(),
        loaded.treatment,
        loaded.info.model_name,
        list(loaded.class_names),
        device,
        loaded.info.data,
    )


def _registered(
    name: str, model_args: dict[str, Any], size: tuple[int, int] | None, pretrained: bool, device: torch.device
) -> NamedModel:
    import timm
    from timm.data import resolve_data_config

    from vit_rpe.data import Preprocessing

    if not timm.is_model(name):
        known = [*timm.list_models("vit_rpe*"), *timm.list_models()]
        if Path(name).exists():
            raise ValueError(f"--model takes the name of a registered model; {name} is a path: --checkpoint {name}")
        raise ValueError(f"unknown model {name!r}{closest(name, known)}; timm.list_models() lists all")
    given = dict(model_args) if size is None else {**model_args, "img_size": size}
    try:
        model = timm.create_model(name, pretrained=pretrained, **given)
    except TypeError as error:
        raise ValueError(f"{name} does not take these arguments: {error}") from error
    if not pretrained:
        print(
            f"note: {name} has random weights here; --pretrained takes published ones, --checkpoint a trained model's",
            file=sys.stderr,
        )
    config = resolve_data_config({}, model=model)
    channels = int(model_args.get("in_chans") or config["input_size"][0])
    native = getattr(getattr(model, "patch_embed", None), "img_size", None)
    treatment = Preprocessing(
        img_size=size or tuple(native or config["input_size"][1:]),
        in_chans=channels,
        mean=tuple(config["mean"])[:channels],
        std=tuple(config["std"])[:channels],
        crop_pct=config["crop_pct"],
        interpolation=config["interpolation"],
    )
    return NamedModel(model.to(device).eval(), treatment, name, None, device)
