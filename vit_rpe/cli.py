"""The command line: ``vit-rpe COMMAND ...``.

``COMMANDS`` is the table of contents. A row names the module that holds the command (imported only when the command
is asked for) and the sentence that ``vit-rpe --help`` shows. ``train`` parses its own arguments, because they are
the fields of its config.

What a user can cause (a bad value, a missing file, a full disk) prints one line and exits with status 1; anything
else is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence

from vit_rpe.checks import unknown_name

__all__ = ["COMMANDS", "main", "one_line_errors"]

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("vit_rpe.commands.train", "train a model from a config"),
    "evaluate": ("vit_rpe.commands.evaluate", "accuracy and calibration of a checkpoint"),
    "predict": ("vit_rpe.commands.predict", "the most likely classes of images"),
    "extrapolate": ("vit_rpe.commands.extrapolate", "results beyond the trained length, image size or place"),
    "study": ("vit_rpe.commands.study", "compare encodings over seeds, sizes and data fractions"),
    "visualize": ("vit_rpe.commands.visualize", "draw attention, biases, content against position"),
    "explore": ("vit_rpe.commands.explore", "write a page in which you point and see where a model looks"),
    "benchmark": ("vit_rpe.commands.benchmark", "speed and memory beside no position and other packages"),
    "encodings": ("vit_rpe.commands.encodings", "list the encodings: paper, parameters, kernels"),
    "export": ("vit_rpe.commands.export", "a checkpoint as ONNX or torch.export file, checked against the model"),
    "parity": ("vit_rpe.commands.parity", "compare converted models with timm's own"),
}


def one_line_errors(work: Callable[[], int | None]) -> int:
    """Run ``work`` and turn the errors a user can cause into one line on standard error.

    Args:
        work: takes nothing, returns an exit status or ``None`` for success.

    Returns:
        The exit status: that of ``work``, 1 after an error, 130 after Ctrl-C.
    """
    try:
        return work() or 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (ValueError, RuntimeError, OSError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"error: {message}", file=sys.stderr)
        return 1


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    head = "usage: vit-rpe COMMAND [options]\n\nRelative position encodings for vision transformers.\n\ncommands:"
    return "\n".join([head, *rows, "", "vit-rpe COMMAND --help lists the options of a command."])


def _run_command(name: str, arguments: Sequence[str]) -> int | None:
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    module = importlib.import_module(COMMANDS[name][0])
    if name == "train":
        return module.main(arguments)
    parser = argparse.ArgumentParser(prog=f"vit-rpe {name}", description=module.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    return module.run(parser.parse_args(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``vit-rpe``.

    Args:
        arguments: the words after the program's name; ``None`` takes them from ``sys.argv``.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0 if words else 2
    return one_line_errors(lambda: _run_command(words[0], words[1:]))


if __name__ == "__main__":
    sys.exit(main())
