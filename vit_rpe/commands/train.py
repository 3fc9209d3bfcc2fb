"""``vit-rpe train``: parse a config, run it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(words: Sequence[str]) -> int:
    """Train as the command line says.

    Args:
        words: the words after ``train``.

    Returns:
        The exit status: 0, or 128 and the number of the signal that stopped the run.
    """
    from vit_rpe.training.config.parse import parse_config

    config = parse_config(words)

    from vit_rpe.training.loop import Interrupted
    from vit_rpe.training.run import train

    try:
        train(config)
    except Interrupted as stop:
        print(f"stopped by {stop}; the state is saved, --output {config.output} --resume auto goes on")
        return 128 + stop.number
    return 0
