"""The run folder: what a run leaves behind, and where.

```
config.yaml     the resolved config           pictures/   curves, attention maps, learned bias
versions.json   versions and git revision     best/       model.safetensors, config.json
metrics.csv     one row per epoch             last/       the same, and training_state.pt
data.json       what the data held, what was taken and left out
log.txt         what was printed              history/    older epochs, with train.keep > 1
```
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import platform
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from vit_rpe.training.checkpoint.files import newest, remove, write_folder, write_text

__all__ = [
    "default_output",
    "find_run",
    "forget_run",
    "read_metrics",
    "take_best_along",
    "write_metrics",
    "write_versions",
]

_PACKAGES = (
    "vit_rpe",
    "torch",
    "torchvision",
    "timm",
    "accelerate",
    "albumentations",
    "numpy",
    "torchmetrics",
)


def find_run(path: Path) -> Path | None:
    """The run folder that ``path`` is, or that holds the checkpoint folder or file ``path``."""
    for folder in (path, *list(path.absolute().parents)[:3]):
        if (folder / "config.yaml").is_file():
            return folder
    return None


def default_output(config_file: Path, *, resume: str | None) -> Path:
    """Where a run goes that names no folder: ``runs/EXPERIMENT/TIME``, or where the resumed run lies."""
    if resume not in (None, "auto"):
        run = find_run(Path(resume))
        if run is not None:
            return run
    experiment = Path("runs") / f"{config_file.parent.name}-{config_file.stem}"
    if resume == "auto":
        earlier = [run for run in sorted(experiment.glob("*")) if newest(run / "last") is not None]
        if earlier:
            return earlier[-1]
    return experiment / time.strftime("%Y-%m-%d_%H-%M-%S")


def _git(*words: str) -> str | None:
    source = Path(__file__).parent
    try:
        done = subprocess.run(["git", *words], cwd=source, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def write_versions(folder: Path) -> None:
    """Write ``versions.json``: Python, packages, platform, and the git revision of the source if it has one."""
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    changes = _git("status", "--porcelain", "--untracked-files=no", ".")
    content = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "git_revision": _git("rev-parse", "HEAD"),
        "git_changes": None if changes is None else bool(changes),
        "command": sys.argv,
    }
    write_text(folder / "versions.json", json.dumps(content, indent=2) + "\n")


def write_metrics(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write ``metrics.csv``, one row per epoch."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))  # a resumed run may measure other things
    table = csv.DictWriter(text, fieldnames=names, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(folder / "metrics.csv", text.getvalue())


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The rows of ``metrics.csv`` as numbers."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]


def forget_run(folder: Path) -> None:
    """Remove what an earlier run left in its folder, so that nothing of it is taken for the new one's; a folder that
    is no run's is left alone."""
    if not (folder / "config.yaml").is_file():
        return
    for name in ("last", "best"):
        for end in ("", ".new", ".old", ".part"):
            remove(folder / f"{name}{end}")
    for name in ("history", "pictures"):
        remove(folder / name)
    for name in ("metrics.csv", "log.txt"):
        (folder / name).unlink(missing_ok=True)


def take_best_along(resumed: Path, folder: Path) -> None:
    """Copy the best checkpoint of a resumed run into its new folder, unless that has one (or is the old folder)."""
    run = find_run(resumed)
    best = None if run is None else newest(run / "best")
    if best is not None and newest(folder / "best") is None:
        write_folder(folder / "best", partial(_copy_into, best))


def _copy_into(source: Path, place: Path) -> None:
    shutil.copytree(source, place, dirs_exist_ok=True)
