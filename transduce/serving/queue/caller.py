"""The request that a thread works for: its deadline, and whether its client has gone."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from transduce.serving.refusals import Cancelled

_NUMBERS = itertools.count()


class Caller:
    """One request of a client: when its answer is no longer needed."""

    def __init__(self, seconds: float | None = None) -> None:
        """Begin a request that must be answered within some seconds, or at any time."""
        self.number = next(_NUMBERS)
        self.seconds = seconds
        self.sentences = 0  # that were handed in so far
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._lock = threading.Lock()
        self._reason: Exception | None = None  # why the request was given up
        self._listeners: list[Callable[[Exception], None]] = []

    def cancel(self, reason: Exception | None = None) -> None:
        """Give up the request, by default because its client has gone; tell all who work for it."""
        with self._lock:
            self._reason = self._reason or reason or Cancelled("the client has gone")
            listeners = [*self._listeners]
        for listener in listeners:
            listener(self._reason)

    @contextmanager
    def listening(self, listener: Callable[[Exception], None]) -> Iterator[None]:
        """Call a function if the request is given up in the meantime, or was before."""
        with self._lock:
            self._listeners.append(listener)
            reason = self._reason
        if reason:
            listener(reason)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def seconds_left(self) -> float | None:
        """Return the seconds until the deadline, or None if there is none."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic())


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
