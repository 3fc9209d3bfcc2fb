"""Trained runs as a person meets them: load one, list those below a folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vit_rpe.plugins import load_plugins
from vit_rpe.training.checkpoint.checkpoint import LoadedCheckpoint, load_checkpoint
from vit_rpe.training.checkpoint.run_folder import read_metrics
from vit_rpe.training.config.yaml_text import read_yaml

__all__ = ["RunSummary", "encoding_words", "list_runs", "load_run"]


def load_run(
    path: str | Path, *, img_size: int | tuple[int, int] | None = None, plugins: Iterable[str] = ()
) -> LoadedCheckpoint:
    """A trained model, ready to be called, with its class names and the treatment of its inputs.

    >>> run = vit_rpe.load_run("runs/digits")                                        # doctest: +SKIP
    >>> logits = run.model(run.preprocessing("five.png")[None])                      # doctest: +SKIP
    >>> run.class_names[int(logits.argmax())]                                        # doctest: +SKIP

    Args:
        path: a run folder (``best/`` is taken, else ``last/``), a checkpoint folder, a file in one, or the name of a
            trained model that comes with the package, such as ``vit_rpe_nano_patch2_8.bias_digits``.
        img_size: another image side or (height, width) in pixels; positions are resampled.
        plugins: files or modules with encodings of one's own; a run never imports anything by itself.

    Raises:
        ValueError: no checkpoint there, a damaged one, a plug-in that is missing, or a size the model refuses.
    """
    load_plugins(plugins)
    return load_checkpoint(path, img_size=img_size)


@dataclass(frozen=True)
class RunSummary:
    """One run of a list. ``accuracy`` is of the best epoch so far, 0 to 1, and None before the first; ``problem`` says
    what cannot be read."""

    folder: Path
    model: str = ""
    encoding: str = ""
    data: str = ""
    epochs: int = 0
    epochs_planned: int = 0
    accuracy: float | None = None
    problem: str | None = None


def list_runs(folder: str | Path = "runs") -> list[RunSummary]:
    """The runs at or below ``folder``, by name; one that cannot be read is listed with the reason.

    Raises:
        ValueError: there is no such folder.
    """
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"there is no folder {place}")
    return [_summary(config.parent) for config in sorted(place.rglob("config.yaml"))]


def encoding_words(rpe: Any) -> str:
    """An encoding as a config gives it, in words that tell runs apart: ``bias``, ``rope base=50``, ``bias + rope``."""
    if isinstance(rpe, (list, tuple)):
        return " + ".join(map(encoding_words, rpe))
    if isinstance(rpe, dict):
        return " ".join([str(rpe.get("name")), *(f"{key}={value}" for key, value in rpe.items() if key != "name")])
    return str(rpe)


def _summary(folder: Path) -> RunSummary:
    try:
        config = read_yaml(folder / "config.yaml")
        model, data, train = (config[section] for section in ("model", "data", "train"))
        rows = read_metrics(folder) if (folder / "metrics.csv").is_file() else []
        return RunSummary(
            folder=folder,
            model=model["name"],
            encoding="" if model.get("rpe") is None else encoding_words(model["rpe"]),
            data=data["name"],
            epochs=len(rows),
            epochs_planned=train["epochs"],
            accuracy=max((row["test_accuracy"] for row in rows), default=None),
        )
    except (KeyError, OSError, TypeError, ValueError) as error:
        return RunSummary(folder, problem=f"{type(error).__name__}: {error}")
