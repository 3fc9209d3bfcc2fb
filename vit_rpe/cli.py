"""The command line: ``vit-rpe COMMAND ...``.

``COMMANDS`` is the table of contents; the module of a command is imported when the command is asked for, and imports
torch when it runs. ``train`` parses its own arguments, because they are the fields of its config.

What a user can cause (a bad value, a missing file, a full disk, a package that is not installed) prints one line and
exits with status 1, or 2 for options that are wrong as such; anything else is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from vit_rpe import __version__
from vit_rpe.checks import closest, unknown_name

__all__ = ["COMMANDS", "EXTRAS", "OptionParser", "main", "one_line_errors"]

COMMANDS: dict[str, str] = {
    "train": "train a model from a config",
    "evaluate": "accuracy and calibration of a checkpoint",
    "predict": "the most likely classes of images",
    "extrapolate": "results beyond the trained length, image size or place",
    "list": "the runs below a folder, with their accuracy",
    "study": "compare encodings over seeds, sizes and data fractions",
    "speedrun": "train small models against the clock, all images on the device",
    "visualize": "draw attention, biases, content against position",
    "explore": "write a page in which you point and see where a model looks",
    "benchmark": "speed and memory beside no position and other packages",
    "encodings": "list the encodings: paper, parameters, kernels",
    "share": "a folder to give away: weights in half precision, model card, picture",
    "export": "a checkpoint as ONNX or torch.export file, checked against the model",
    "parity": "compare converted models with timm's own",
}
EXTRAS: dict[str, tuple[str, ...]] = {
    "viz": ("matplotlib",),
    "data": ("datasets",),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "train": (
        "accelerate",
        "albumentations",
        "cv2",
        "jsonargparse",
        "matplotlib",
        "rich",
        "scipy",
        "sklearn",
        "torchmetrics",
    ),
    "trackers": ("tensorboard", "trackio", "wandb"),
}
"""Optional dependencies, as they are imported, by the extra of ``pyproject.toml`` that installs them."""


class OptionParser(argparse.ArgumentParser):
    """An ``ArgumentParser`` whose errors are one line, with the closest name; options are never abbreviated."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})
        self._prefixes: tuple[str, ...] = ()
        self._further: Callable[[], Iterable[str]] = list

    def pass_on(self, prefixes: Sequence[str], names: Callable[[], Iterable[str]]) -> None:
        """Leave options that begin like this, with the words behind them, unread in ``passed_on``.

        Args:
            names: gives those that there are, for the hint at a misspelled one.
        """
        self._prefixes, self._further = tuple(prefixes), names

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but an unknown option is told before anything else."""
        own, passed_on = self._split(list(args or []))
        known = list(self._options())
        for word in own:
            name = word.partition("=")[0]
            if name == "--":
                break
            if name.startswith("--") and name not in known:
                self.error(f"unknown option {name}{closest(name, [*known, *self._further()])}")
        found = super().parse_args(own, namespace)
        if self._prefixes:
            found.passed_on = passed_on
        return found

    def _split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """The words for this parser, and those that are passed on: an option, and what follows it up to the next."""
        sides: tuple[list[str], list[str]] = ([], [])
        passes = False
        for word in words:
            if word.startswith("--"):
                passes = bool(self._prefixes) and word.startswith(self._prefixes)
            sides[passes].append(word)
        return sides

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {' '.join(message.split())}; {self.prog} --help lists the options\n")

    def _options(self) -> Iterable[str]:
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser._options()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, str(unknown_name("value", value, map(str, action.choices))))


def one_line_errors(work: Callable[[], int | None]) -> int:
    """Run ``work`` and turn the errors a user can cause into one line on standard error.

    Args:
        work: takes nothing, returns an exit status or ``None`` for success.

    Returns:
        The exit status: that of ``work``, 1 after an error, 130 after Ctrl-C.
    """
    try:
        status = work() or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `vit-rpe ... | head`: nobody reads any more, and Python would complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        extra = _extra_of(error.name or "")
        if extra is None:
            raise
        print(f"error: {error.name} is not installed: pip install 'vit_rpe[{extra}]'", file=sys.stderr)
        return 1
    except (ValueError, RuntimeError, OSError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"error: {message}", file=sys.stderr)
        return 1


def _extra_of(module: str) -> str | None:
    """The smallest extra that installs a module."""
    return next((extra for extra, modules in EXTRAS.items() if module.partition(".")[0] in modules), None)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    head = "usage: vit-rpe COMMAND [options]\n\nRelative position encodings for vision transformers.\n\ncommands:"
    return "\n".join([head, *rows, "", "vit-rpe COMMAND --help lists the options of a command, --version the version."])


def _run_command(name: str, arguments: Sequence[str]) -> int | None:
    if name not in COMMANDS:
        raise unknown_name("command", name, [*COMMANDS, "--help", "--version"])
    module = importlib.import_module(f"vit_rpe.commands.{name}")
    if name == "train":
        return module.main(arguments)
    parser = OptionParser(prog=f"vit-rpe {name}", description=module.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    text = "a file or module to import first, with encodings of your own; may be given several times"
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE_OR_MODULE", help=text)
    args = parser.parse_args(arguments)
    plugins = importlib.import_module("vit_rpe.plugins")
    plugins.load_installed()
    plugins.load_plugins(args.plugin)
    return module.run(args)


def _at_home(word: str) -> str:
    """``--option=~/x`` with the home folder in it: shells expand it only where it stands alone."""
    option, equals, value = word.partition("=")
    return f"{option}={os.path.expanduser(value)}" if equals and option.startswith("--") and value[:1] == "~" else word


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``vit-rpe``.

    Args:
        arguments: the words after the program's name; ``None`` takes them from ``sys.argv``.

    Returns:
        The exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names on disk need not be text: they are printed somehow
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    words = [_at_home(word) for word in words]
    if words[:1] == ["--version"]:
        print(f"vit_rpe {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0 if words else 2
    return one_line_errors(lambda: _run_command(words[0], words[1:]))


if __name__ == "__main__":
    sys.exit(main())
