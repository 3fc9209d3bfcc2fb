"""Ctrl-C and SIGTERM ask the loop to stop at its next piece of work; a second one stops at once."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType

__all__ = ["Interrupt"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Context in which ``received`` names the signal that came, or is ``None``; that it came is said at once.

    Outside the main thread Python lets nobody handle signals; there the context does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.received is not None:
            _tell(f"{name} again: stopped, nothing more is saved")
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        _tell(f"{name}: the batch at hand is finished and the state saved; once more stops at once")

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _tell(text: str) -> None:
    """Write past all buffers: a handler may run in the middle of a print."""
    with suppress(OSError):  # nobody reads any more, which is no reason not to save
        os.write(2, f"\n{text}\n".encode())
