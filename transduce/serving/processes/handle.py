"""One process that speaks HTTP, as seen by the one that searches."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from transduce.serving.observation import METRICS_FOLDER
from transduce.serving.processes.channel import Answering
from transduce.serving.processes.http_process import CONNECTION, DRAIN
from transduce.serving.processes.remote import Work

# The parent's places of modules, and no others: not the working directory.
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from transduce.serving.processes.http_process import main; main(sys.argv[1:3])"
)


class HttpProcess:
    """A process that was started to speak HTTP, and the connections that it has."""

    def __init__(
        self,
        work: Work,
        functions: dict[str, Callable[..., Any]],
        folder: str,
        on_end: Callable[[HttpProcess], None],
    ) -> None:
        """Start the process.

        Args:
            work: What it serves.
            functions: What answers its questions.
            folder: Where it writes its metrics.
            on_end: Is called when it has ended.
        """
        self.is_ready = threading.Event()
        self._open = 0  # connections that it has
        self._connections, their_connections = socket.socketpair()
        questions, their_questions = socket.socketpair()
        numbers = [their_connections.fileno(), their_questions.fileno()]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *map(str, numbers), *sys.path],
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                env={**os.environ, METRICS_FOLDER: folder},
                process_group=0,  # Ctrl-C does not reach it: this process decides when it stops
            )
        except OSError:
            self._connections.close()
            questions.close()
            raise
        finally:
            their_connections.close()
            their_questions.close()
        self._connections.setblocking(False)
        functions = {**functions, "report_start": self.is_ready.set}
        connection = Connection(questions.detach())
        Answering(connection, functions, partial(on_end, self), first=work)

    def count_open(self) -> int:
        """Return how many connections it has."""
        with contextlib.suppress(OSError):
            while closed := self._connections.recv(4096):
                self._open -= len(closed)
        return self._open

    def give(self, connection: socket.socket) -> bool:
        """Give it a connection, and return whether that was possible."""
        if not self.is_ready.is_set():
            return False
        try:
            socket.send_fds(self._connections, [CONNECTION], [connection.fileno()])
        except OSError:
            return False
        self._open += 1
        return True

    def drain(self) -> None:
        """Announce that it will have to stop."""
        with contextlib.suppress(OSError):
            self._connections.send(DRAIN)

    def stop(self) -> None:
        """Let it answer everything that it was given, and end."""
        with contextlib.suppress(OSError):
            self._connections.shutdown(socket.SHUT_WR)

    def wait(self, seconds: float) -> None:
        """Wait until it has ended; kill it if that takes longer."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._connections.close()
