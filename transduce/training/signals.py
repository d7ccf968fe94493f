"""SIGTERM and SIGINT as something to look at between two steps, or to leave work that can be done again.

A signal to one rank is one to all: they agree on what they do about it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

from transduce.training.distributed import World

T = TypeVar("T")


class Interrupted(BaseException):  # no `except Exception` on its way may swallow it
    """A signal came during work that leaves no traces."""


class Signals:
    """The names of those that came, for the loop to look at."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._interrupt = False

    def interruptible(self, work: Callable[[], T], world: World) -> T:
        """Work that leaves no traces. A signal ends it at once, on other ranks after it; then all raise `Interrupted`.

        Every rank of the world must call it, and none may wait for another in its work.
        """
        with suppress(Interrupted), self._interrupting():
            result = work()
        if world.any(bool(self.seen)):
            raise Interrupted
        return result

    @contextmanager
    def _interrupting(self) -> Iterator[None]:
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
            self._interrupt = False  # once: the work may have been about to end
            raise Interrupted


@contextmanager
def watched_signals() -> Iterator[Signals]:
    """Signals are noted here until the end of the block."""
    signals = Signals()
    before = {
        number: signal.signal(number, signals.note) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
