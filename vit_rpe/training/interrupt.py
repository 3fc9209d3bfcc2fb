"""Ctrl-C and SIGTERM ask the loop to stop at the next update; a second Ctrl-C stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

__all__ = ["Interrupt"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Context in which ``received`` names the signal that came, or is ``None``.

    Outside the main thread Python lets nobody handle signals; there the context does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
