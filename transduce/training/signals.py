"""SIGTERM and SIGINT, noted for the training loop or interrupting work that can be repeated.

A signal to one rank counts for all: the ranks agree on how to react.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

from transduce.training.distributed import World

T = TypeVar("T")


class Interrupted(BaseException):  # a BaseException, so that no `except Exception` swallows it
    """A signal arrived during interruptible work."""


class Signals:
    """The names of the signals that have arrived, in order."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self._interrupt = False

    def run_interruptible(self, work: Callable[[], T], world: World) -> T:
        """Run work without side effects, which a signal may interrupt at any moment.

        After a signal to any rank, all ranks raise `Interrupted`: that rank at once, the others
        when their work is done. Every rank of the world must call this, and the work itself must
        not wait for other ranks.
        """
        # A rank that was interrupted must still take part in the agreement below.
        with suppress(Interrupted), self._interrupting():
            result = work()
        if world.any(bool(self.received)):
            raise Interrupted
        return result

    @contextmanager
    def _interrupting(self) -> Iterator[None]:
        self._interrupt = True
        try:
            # The signal may have arrived before the work began.
            if self.received:
                raise Interrupted
            yield
        finally:
            self._interrupt = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; a second SIGINT raises KeyboardInterrupt wherever the program is."""
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received.append(signal.Signals(number).name)
        if self._interrupt:
            self._interrupt = False  # only once: the work may be about to end anyway
            raise Interrupted


@contextmanager
def catch_signals() -> Iterator[Signals]:
    """Collect SIGTERM and SIGINT until the end of the block."""
    signals = Signals()
    previous = {
        number: signal.signal(number, signals.handle) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
