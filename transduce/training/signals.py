"""Handle SIGTERM and SIGINT: note them for the training loop, or interrupt repeatable work.

A signal to one rank counts for all: the ranks agree on how to react.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

from transduce.training.distributed import World

T = TypeVar("T")
PATIENCE_SECONDS = 2.0  # after a second Ctrl-C, before the process is ended


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
        with _answering():
            yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _answering() -> Iterator[None]:
    """Answer Ctrl-C at once, even in the middle of a step.

    Python runs signal handlers between two of its instructions, and one instruction can be the
    whole backward pass. A thread learns of a signal immediately.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    previous = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_answer, args=(receiver,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        sender.close()
        thread.join()
        receiver.close()


def _answer(receiver: socket.socket) -> None:
    """Say what a Ctrl-C does; after a second one, end the process if it does not end itself."""
    interrupts = 0
    while number := receiver.recv(1):
        if number[0] != signal.SIGINT:
            continue
        interrupts += 1
        if interrupts == 1:
            _say("the run stops and is saved after this step; Ctrl-C again leaves at once")
        elif _still_runs(receiver, PATIENCE_SECONDS):
            _say("left without saving; the same command continues from the last checkpoint")
            os._exit(130)


def _still_runs(receiver: socket.socket, seconds: float) -> bool:
    """Return whether the block that catches signals still lasts after so many seconds."""
    receiver.settimeout(seconds)
    try:
        return bool(receiver.recv(1))
    except TimeoutError:
        return True
    finally:
        receiver.settimeout(None)


def _say(message: str) -> None:
    with suppress(OSError):
        os.write(2, f"\ntransduce: {message}\n".encode())
