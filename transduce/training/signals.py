"""SIGTERM and SIGINT as something to look at between two steps."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def watched_signals() -> Iterator[list[str]]:
    """SIGTERM and SIGINT as names in a list, for the loop to look at; a second SIGINT interrupts at once."""
    seen: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        if seen and number == signal.SIGINT:
            raise KeyboardInterrupt
        seen.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
