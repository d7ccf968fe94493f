"""SIGTERM and SIGINT as something to look at between two steps, or to leave work that can be done again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):  # no `except Exception` on its way may swallow it
    """A signal came during work that leaves no traces."""


class Signals:
    """The names of those that came, for the loop to look at."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._interrupt = False

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """A signal ends this work at once, by raising `Interrupted`."""
        self._interrupt = True
        try:
            if self.seen:
                raise Interrupted
            yield
        finally:
            self._interrupt = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler; a second SIGINT interrupts anything."""
        if self.seen and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.seen.append(signal.Signals(number).name)
        if self._interrupt:
            raise Interrupted


@contextmanager
def watched_signals() -> Iterator[Signals]:
    """Signals are noted here until the end of the block."""
    signals = Signals()
    before = {number: signal.signal(number, signals.note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
