"""What a person sees of a run: a live bar on a terminal, lines in a log, and the same lines in ``log.txt``."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["LINE_SECONDS", "Display"]

LINE_SECONDS = 30.0
"""A log that is not a terminal, and ``log.txt``, get a line at least this often while work goes on."""
_BAR_SECONDS = 0.5


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
            TextColumn("{task.fields[words]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, words="")
        self._shown = self._said = float("-inf")
        self._from: tuple[float, int] | None = None

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
        self._said = time.monotonic()
        self.console.print(text, markup=False)
        self.keep(text)

    def keep(self, text: str) -> None:
        """Only keep a line; it waits until the log's folder exists."""
        if self.log is None or self.quiet:
            return
        self._waiting.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
        if self.log.parent.is_dir():
            with self.log.open("a", encoding="utf-8") as file:
                file.writelines(self._waiting)
            self._waiting.clear()

    def due(self) -> bool:
        """Whether it is time to ``show`` something, so that numbers need not be fetched more often."""
        if self.quiet:
            return False
        now = time.monotonic()
        fresh = self.console.is_terminal and now - self._shown >= _BAR_SECONDS
        return fresh or self._from is None or now - self._said >= LINE_SECONDS

    def show(self, words: str, *, done: int, total: int) -> None:
        """Move the bar to ``done`` updates of the whole run; where there is none, or in ``log.txt``, a line at times.

        The first call of a run gives a line at once.
        """
        now = time.monotonic()
        self._shown = now
        self._bar.update(self._task, completed=done, total=total, words=words)
        first = self._from is None
        began, done_then = self._from = self._from or (now, done)
        if not first and now - self._said < LINE_SECONDS:
            return
        line = f"{words}{_left(now - began, done - done_then, total - done)}"
        if self.console.is_terminal:
            self._said = now
            self.keep(line)
        else:
            self.say(line)


def _left(seconds: float, done: int, remaining: int) -> str:
    """The time left in words, once there is something to reckon with."""
    if done < 1 or seconds <= 0:
        return ""
    left = seconds / done * remaining
    return f"  about {left:.0f} s left" if left < 120 else f"  about {left / 60:.0f} min left"
