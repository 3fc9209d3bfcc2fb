"""The model that ``visualize`` and ``explore`` look at: of a checkpoint, of timm's registry by its name, or of Hugging
Face's ``transformers``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.checks import closest
from vit_rpe.commands._hugging_face import hugging_face_model
from vit_rpe.commands._model import NamedModel
from vit_rpe.commands._options import add_checkpoint, add_device, add_img_size, choose_device, image_size, json_object

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["NamedModel", "add_model_arguments", "checkpoint_model", "load_model"]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say which model, and which images."""
    which = parser.add_mutually_exclusive_group(required=True)
    add_checkpoint(which, required=False)
    which.add_argument("--model", metavar="NAME", help="a registered model, ours or any of timm's; random weights")
    which.add_argument(
        "--published", metavar="FILE", help="what authors published outside timm: ViT-5, LookHere, iRPE-DeiT, RoPE-Swin"
    )
    which.add_argument("--hf", metavar="FOLDER_OR_NAME", help="a vision model of Hugging Face's transformers")
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="with --model: its published weights (a download, unless they come with the package)",
    )
    parser.add_argument("--weights", metavar="FILE", help="with --model: its weights, .safetensors or .pth")
    parser.add_argument(
        "--model-args",
        type=json_object,
        default={},
        metavar="JSON",
        help='with --model or --published: such as \'{"rpe": "rope"}\'',
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
    if args.pretrained and args.weights is not None:
        raise ValueError("--pretrained and --weights are two sources of weights: choose one")
    if args.model is not None:
        from vit_rpe.models.shipped import shipped_models

        if args.pretrained and not args.model_args and args.model in shipped_models():
            return checkpoint_model(args.model, size, device)
        return _registered(args, size, device)
    if args.published is not None and not args.pretrained and args.weights is None:
        return _published(args, size, device)
    if args.pretrained or args.model_args or args.weights is not None:
        raise ValueError(
            "--pretrained, --weights and --model-args go with --model: a checkpoint knows its weights and arguments"
        )
    if args.hf is not None:
        return hugging_face_model(args.hf, size, device)
    return checkpoint_model(args.checkpoint, size, device)


def checkpoint_model(path: str | Path, size: tuple[int, int] | None, device: torch.device) -> NamedModel:
    """The model of a checkpoint.

    Raises:
        ValueError: no checkpoint there, one that is damaged or names no classes, or a size the model refuses.
    """
    from vit_rpe.models.shipped import shipped_models
    from vit_rpe.training.checkpoint.checkpoint import load_checkpoint

    loaded = load_checkpoint(path, img_size=size)
    if not loaded.class_names:
        raise ValueError(f"{loaded.folder / 'config.json'} has no class names: train or save the checkpoint with them")
    return NamedModel(
        loaded.model.to(device).eval(),
        loaded.treatment,
        str(path) if str(path) in shipped_models() else loaded.info.model_name,
        list(loaded.class_names),
        device,
        loaded.info.data,
    )


def _registered(args: argparse.Namespace, size: tuple[int, int] | None, device: torch.device) -> NamedModel:
    import timm

    name, model_args = args.model, args.model_args
    if not timm.is_model(name):
        known = [*timm.list_models("vit_rpe*"), *timm.list_models()]
        if Path(name).exists():
            raise ValueError(f"--model takes the name of a registered model; {name} is a path: --checkpoint {name}")
        raise ValueError(f"unknown model {name!r}{closest(name, known)}; timm.list_models() lists all")
    given = dict(model_args) if size is None else {**model_args, "img_size": size}
    try:
        model = timm.create_model(name, pretrained=args.pretrained, **given)
    except TypeError as error:
        raise ValueError(f"{name} does not take these arguments: {error}") from error
    if args.weights is not None:
        _load_weights(model, Path(args.weights).expanduser())
    elif not args.pretrained:
        print(
            f"note: {name} has random weights here; --pretrained takes published ones, --weights those of a file, "
            "--checkpoint a trained model's",
            file=sys.stderr,
        )
    return _named(model, name, size, int(model_args.get("in_chans") or 0), device)


def _published(args: argparse.Namespace, size: tuple[int, int] | None, device: torch.device) -> NamedModel:
    from vit_rpe.models import from_published

    given = dict(args.model_args) if size is None else {**args.model_args, "img_size": size}
    try:
        model = from_published(args.published, **given)
    except TypeError as error:
        raise ValueError(f"{args.published} does not take these arguments: {error}") from error
    return _named(model, Path(args.published).stem, size, int(given.get("in_chans") or 0), device)


def _named(
    model: nn.Module, name: str, size: tuple[int, int] | None, channels: int, device: torch.device
) -> NamedModel:
    """The model with timm's treatment of its images; no ``channels``: as many as that says."""
    from timm.data import resolve_data_config

    from vit_rpe.data import Preprocessing

    config = resolve_data_config({}, model=model)
    channels = channels or int(config["input_size"][0])
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


def _load_weights(model: nn.Module, file: Path) -> None:
    """Fill a model with the weights of a file; no code of the file is run.

    Raises:
        ValueError: no such file, or weights that are not those of the model.
    """
    from vit_rpe.models.exchange.files import read_file
    from vit_rpe.models.exchange.weights import unwrap

    try:
        found = unwrap(read_file(file))
    except ValueError as error:
        raise ValueError(f"--weights {error}") from error
    wanted = model.state_dict()
    missing, other = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or other:
        lacks = f"lacks {len(missing)} of the model's weights ({', '.join(missing[:3])})" if missing else ""
        has = f"has {len(other)} that the model does not have ({', '.join(other[:3])})" if other else ""
        raise ValueError(f"--weights {file} {' and '.join(filter(None, (lacks, has)))}")
    shapes = [key for key in wanted if wanted[key].shape != found[key].shape]
    if shapes:
        key = shapes[0]
        given, expected = tuple(found[key].shape), tuple(wanted[key].shape)
        raise ValueError(f"--weights {file}: {key} has shape {given}, the model's has {expected}")
    model.load_state_dict(found)
    if not getattr(found, "_metadata", None):
        _say_native(model, file)


def _say_native(model: nn.Module, file: Path) -> None:
    """Tell which size is taken for the one that encodings were trained on, where their formula holds it and a file of
    bare tensors does not."""
    from vit_rpe.encodings import find_encodings

    found = (encoding.remembered().get("native") for _, encoding in find_encodings(model))
    natives = {native for native in found if native is not None}
    if natives:
        size = ", ".join(" x ".join(map(str, native)) for native in sorted(natives))
        print(
            f"note: {file} does not say the grid its positions were trained on, {size} tokens are taken; "
            '--model-args with "native" in "rpe" names another',
            file=sys.stderr,
        )
