"""What ``visualize`` and ``explore`` look at: a model, and images or a text for it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_rpe.checks import closest, unknown_name

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from vit_rpe.data import Preprocessing, TextTreatment

__all__ = ["Subject", "add_subject_arguments", "load_images", "load_subject", "number_of_class", "numbers"]


@dataclass
class Subject:
    """A model in eval mode on its device, how inputs are prepared for it, its name, and its classes if known."""

    model: nn.Module
    treatment: Preprocessing | TextTreatment
    title: str
    class_names: list[str] | None
    device: torch.device


def add_subject_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say which model and which images."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--checkpoint", metavar="DIR_OR_FILE", help="run folder, or a checkpoint in it")
    which.add_argument("--model", metavar="NAME", help="a registered model: ours or any of timm's")
    parser.add_argument("--pretrained", action="store_true", help="with --model: its published weights (a download)")
    parser.add_argument(
        "--model-args", type=_mapping, default={}, metavar="JSON", help='with --model: such as \'{"rpe": "rope"}\''
    )
    parser.add_argument("--image", nargs="+", default=[], metavar="PATH", help="image files, or folders of them")
    parser.add_argument(
        "--img-size", type=int, nargs="+", metavar="N", help="image side, or height and width; default: the model's"
    )
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")


def _mapping(text: str) -> dict[str, Any]:
    """A JSON object as a dict."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {text!r} ({error})") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'expected a JSON object such as {{"rpe": "rope"}}, got {text!r}')
    return found


def load_subject(args: argparse.Namespace) -> Subject:
    """Build the model.

    Raises:
        ValueError: an unknown model, options that do not fit it, a checkpoint that is damaged or names no classes.
    """
    import torch

    from vit_rpe.commands.evaluate import image_size

    device = torch.device("cpu")
    if args.device == "auto" and torch.accelerator.is_available():
        device = torch.accelerator.current_accelerator() or device
    size = image_size(args.img_size)
    if args.checkpoint is None:
        model, treatment = _registered(args.model, args.model_args, size, args.pretrained)
        return Subject(model.to(device).eval(), treatment, args.model, None, device)
    if args.pretrained or args.model_args:
        raise ValueError("--pretrained and --model-args go with --model: a checkpoint knows its weights and arguments")
    from vit_rpe.training.checkpoint.checkpoint import load_checkpoint

    loaded = load_checkpoint(args.checkpoint, img_size=size)
    if not loaded.class_names:
        raise ValueError(f"{loaded.folder / 'config.json'} has no class names: train or save the checkpoint with them")
    title = loaded.info.model_name
    return Subject(loaded.model.to(device).eval(), loaded.treatment, title, list(loaded.class_names), device)


def _registered(
    name: str, model_args: dict[str, Any], size: tuple[int, int] | None, pretrained: bool
) -> tuple[nn.Module, Preprocessing]:
    import timm
    from timm.data import resolve_data_config

    import vit_rpe  # noqa: F401  (registers the models with timm)
    from vit_rpe.data import Preprocessing

    if not timm.is_model(name):
        hint = closest(name, timm.list_models("vit_rpe*")) or closest(name, timm.list_models())
        raise ValueError(f"unknown model {name!r}{hint}; timm.list_models() lists all")
    given = dict(model_args) if size is None else {**model_args, "img_size": size}
    try:
        model = timm.create_model(name, pretrained=pretrained, **given)
    except TypeError as error:
        raise ValueError(f"{name} does not take these arguments: {error}") from error
    config = resolve_data_config({}, model=model)
    channels = int(model_args.get("in_chans", config["input_size"][0]))
    native = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return model, Preprocessing(
        img_size=size or tuple(native or config["input_size"][1:]),
        in_chans=channels,
        mean=tuple(config["mean"])[:channels],
        std=tuple(config["std"])[:channels],
        crop_pct=config["crop_pct"],
        interpolation=config["interpolation"],
    )


def load_images(subject: Subject, words: Sequence[str]) -> tuple[Tensor, Tensor, list[str]]:
    """The images as the model takes them and as a person sees them.

    Returns:
        inputs (B, C, height, width) on the model's device, pixels of the same shape in 0..1, file names.

    Raises:
        ValueError: no image, a path without one, or a model that takes text.
        OSError: a file that is not an image.
    """
    import torch

    from vit_rpe.commands.predict import image_files
    from vit_rpe.data import Preprocessing

    if not isinstance(subject.treatment, Preprocessing):
        raise ValueError(f"{subject.title} takes text, not images")
    if not words:
        raise ValueError("no image given: use --image PATH ...")
    files = image_files(list(words))
    inputs = torch.stack([subject.treatment(file) for file in files])
    return inputs.to(subject.device), subject.treatment.denormalize(inputs), [Path(file).name for file in files]


def number_of_class(word: str, class_names: list[str] | None) -> int:
    """A class by name, or by number.

    Raises:
        ValueError: neither, or a name where the model's classes have none.
    """
    if class_names is not None and word in class_names:
        return class_names.index(word)
    if word.isdecimal():
        return int(word)
    if class_names is None:
        raise ValueError(f"class {word!r}: this model's classes have no names, give a number")
    raise unknown_name("class", word, class_names)


def numbers(text: str | None, what: str, count: int) -> list[int] | None:
    """``"0,3,6-8"`` as numbers below ``count``; None stays.

    Raises:
        ValueError: not numbers, or not below ``count``.
    """
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"--{what}s takes numbers such as 0,3,6-8, got {text!r}")
        for number in (int(first), int(last or first)):
            if number >= count:
                raise ValueError(f"{what} {number} does not exist: the model has {count} {what}s, 0 to {count - 1}")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise ValueError(f"--{what}s {text!r} names no {what}")
    return found
