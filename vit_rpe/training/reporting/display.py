"""What a person sees of a run: a live bar, one line per epoch, and the same lines in ``log.txt``."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["Display"]


class Display:
    """Context for the bar; ``say`` works inside and outside of it.

    Args:
        log: the file that keeps what is said; ``None`` keeps nothing.
        quiet: show and keep nothing (all processes but the first).
    """

    def __init__(self, log: Path | None = None, *, quiet: bool = False) -> None:
        self.log = log
        self.quiet = quiet
        self._waiting: list[str] = []
        self.console = Console(quiet=quiet, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn(
                "loss {task.fields[loss]:.3f}  acc {task.fields[accuracy]:.1%}  lr {task.fields[lr]:.1e}"
                "  {task.fields[speed]:.0f} images/s  left"
            ),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, epoch="", loss=0.0, accuracy=0.0, lr=0.0, speed=0.0)

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line and keep it."""
        if self.quiet:
            return
        self.console.print(text, markup=False)
        self.keep(text)

    def keep(self, text: str) -> None:
        """Only keep a line; it waits until the log's folder exists."""
        if self.log is None or self.quiet:
            return
        self._waiting.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
        if self.log.parent.is_dir():
            with self.log.open("a") as file:
                file.writelines(self._waiting)
            self._waiting.clear()

    def show(self, *, done: int, total: int, epoch: str, loss: float, accuracy: float, lr: float, speed: float) -> None:
        """Move the bar: updates done of the whole run, and the numbers beside it."""
        self._bar.update(
            self._task,
            completed=done,
            total=total,
            epoch=epoch,
            loss=loss,
            accuracy=accuracy,
            lr=lr,
            speed=speed,
        )
