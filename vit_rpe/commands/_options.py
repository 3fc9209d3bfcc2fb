"""Options that several commands have: declared once, so that they are spelled, checked and explained alike."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vit_rpe.checks import check_index, unknown_name

if TYPE_CHECKING:
    import torch

__all__ = [
    "Renamed",
    "add_checkpoint",
    "add_device",
    "add_img_size",
    "add_output",
    "choose_device",
    "image_size",
    "json_object",
    "number_of_class",
    "numbers",
    "positive",
    "share",
]


class Renamed(argparse.Action):
    """An option under its old name: works, and says the new one."""

    def __init__(self, option_strings: Sequence[str], dest: str, new: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **kwargs)
        self.new = new

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        print(f"note: {option} is now {self.new}; the old name goes in the next release", file=sys.stderr)
        setattr(namespace, self.dest, values)


def add_checkpoint(parser: argparse._ActionsContainer, *, required: bool = True, **options: Any) -> None:
    """``--checkpoint``: which trained model."""
    text = "run folder, a checkpoint in it, or a trained model that comes with the package (vit-rpe list --shipped)"
    parser.add_argument("--checkpoint", required=required, metavar="DIR_OR_FILE", help=text, **options)


def add_img_size(parser: argparse.ArgumentParser) -> None:
    """``--img-size``: one or two numbers, for ``image_size``."""
    text = "image side, or height and width, in pixels; default: the model's"
    parser.add_argument("--img-size", type=int, nargs="+", metavar="N", help=text)


def add_device(parser: argparse.ArgumentParser, *, default: str = "auto") -> None:
    """``--device``: a word for ``choose_device``."""
    text = f"cpu, cuda, cuda:1, mps ...; auto: an accelerator if there is one (default: {default})"
    parser.add_argument("--device", default=default, metavar="NAME", help=text)


def add_output(
    parser: argparse.ArgumentParser, *, default: str | None, metavar: str, help: str, once: str | None = None
) -> None:
    """``--output``: where results go; ``once`` is what the command called it before."""
    text = help if default is None else f"{help}; default: {default}"
    parser.add_argument("--output", default=default, metavar=metavar, help=text)
    if once is not None:
        parser.add_argument(once, dest="output", action=Renamed, new="--output")


def image_size(words: list[int] | None) -> tuple[int, int] | None:
    """``--img-size`` as (height, width).

    Raises:
        ValueError: not one or two positive numbers.
    """
    if words is None:
        return None
    if len(words) > 2 or min(words) < 1:
        raise ValueError(f"--img-size takes a side, or height and width, in pixels; got {' '.join(map(str, words))}")
    return (words[0], words[-1])


def choose_device(word: str) -> torch.device:
    """The device of ``--device``, as :func:`vit_rpe.position.devices.find_device` says."""
    from vit_rpe.position.devices import find_device

    return find_device(word)


def positive(text: str) -> float:
    """A finite number above 0, for ``type=``."""
    return _within(text, 0.0, float("inf"), "a finite number above 0")


def share(text: str) -> float:
    """A number from -1 to 1, for ``type=``."""
    return _within(text, -1.0000001, 1.0000001, "a number from -1 to 1")


def _within(text: str, low: float, high: float, expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low < value < high:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return value


def json_object(text: str) -> dict[str, Any]:
    """A JSON object as a dict, for ``type=``."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {text!r} ({error})") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'expected a JSON object such as {{"rpe": "rope"}}, got {text!r}')
    return found


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
            check_index(what, number, count, "the model")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise ValueError(f"--{what}s {text!r} names no {what}")
    return found
