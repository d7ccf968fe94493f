"""The request that a thread works for: its deadline, and whether its client has gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from transduce.errors import TransduceError


class Busy(TransduceError):
    """A request that the server has no room or no time for now."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class Cancelled(TransduceError):
    """A request whose client has gone."""


class Caller:
    """One request of a client: when its answer is no longer needed."""

    def __init__(self, seconds: float | None = None) -> None:
        """Begin a request that must be answered within some seconds, or at any time."""
        self.cancelled = threading.Event()
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def is_late(self) -> bool:
        """Return whether the deadline has passed."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def seconds_left(self, most: float) -> float:
        """Return the seconds until the deadline, but not more than `most`."""
        if self._deadline is None:
            return most
        return min(most, max(0.0, self._deadline - time.monotonic()))


_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


def current_caller() -> Caller:
    """Return the request of this thread, or a new one that waits for ever."""
    return _CALLER.get() or Caller()


@contextmanager
def calling(caller: Caller) -> Iterator[None]:
    """Make everything that this thread does part of a request."""
    token = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(token)
