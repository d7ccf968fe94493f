"""Several processes for HTTP in front of one that searches.

One Python process cannot parse requests as fast as a GPU translates their sentences. So this
process accepts connections and searches. It gives each connection to one of several processes,
which parse requests, split and tokenize texts, and ask for searches (see `remote`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from transduce.cores import available_cores
from transduce.errors import ConfigError, TransduceError
from transduce.serving.models import Models, Say, ServedModel
from transduce.serving.observation import METRICS_FOLDER
from transduce.serving.processes.channel import Answering
from transduce.serving.processes.http_process import CONNECTION, DRAIN
from transduce.serving.processes.remote import RemoteModel, Work, answers
from transduce.serving.server import accept_all, announcement, prepare_process
from transduce.serving.settings import ServerSettings
from transduce.serving.shared import Shared

MOST_PROCESSES = 4  # unless more are asked for
REST_SECONDS = 5.0  # for a process to end, after the time for its last answers
PAUSE_SECONDS = 1.0  # before a process is replaced that has ended


def choose_count(wanted: int | None, models: Models) -> int:
    """Return the number of processes for HTTP; 1 means the process that searches."""
    if wanted is None:
        is_fast = any(model.queue.is_streaming for model in models.served)
        return max(1, min(MOST_PROCESSES, available_cores() // 2)) if is_fast else 1
    if wanted < 1:
        raise ConfigError(f"--processes is {wanted}; expected at least 1")
    return wanted


class HttpProcess:
    """One process that speaks HTTP, as seen by the one that searches."""

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
        self._connections, their_connections = socket.socketpair()
        questions, their_questions = socket.socketpair()
        sockets = (their_connections, their_questions)
        numbers = [their.fileno() for their in sockets]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "transduce.serving.processes.http_process", *map(str, numbers)],
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            env={**os.environ, METRICS_FOLDER: folder},
            process_group=0,  # Ctrl-C does not reach it: this process decides when it stops
        )
        for their in sockets:
            their.close()
        self._connections.setblocking(False)
        connection = Connection(questions.detach())
        with contextlib.suppress(BrokenPipeError):  # `on_end` is called
            connection.send(work)
        functions = {**functions, "report_start": self.is_ready.set}
        Answering(connection, functions, partial(on_end, self))

    def give(self, connection: socket.socket) -> bool:
        """Give it a connection, and return whether that was possible."""
        if not self.is_ready.is_set():
            return False
        try:
            socket.send_fds(self._connections, [CONNECTION], [connection.fileno()])
        except OSError:
            return False
        return True

    def drain(self) -> None:
        """Announce that it will have to stop."""
        with contextlib.suppress(OSError):
            self._connections.send(DRAIN)

    def stop(self) -> None:
        """Let it answer everything that it was given, and end."""
        self._connections.close()

    def wait(self, seconds: float) -> None:
        """Wait until it has ended; kill it if that takes longer."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class HttpProcesses:
    """All processes that speak HTTP. One that ends before its time is replaced."""

    def __init__(
        self,
        models: Models,
        settings: ServerSettings,
        listener: socket.socket,
        count: int,
        *,
        writes_log: bool = False,
        say: Say = print,
    ) -> None:
        self._models = models
        self._settings = settings
        self._listener = listener
        self._say = say
        self._shared = Shared(settings)
        self._work = Work(
            settings=replace(settings.divided(count), drain_seconds=0),
            models=[_describe(model) for model in models.served],
            refused=models.refused,
            writes_log=writes_log,
        )
        self._folder = tempfile.TemporaryDirectory(prefix="transduce-metrics-")
        self._numbers = itertools.count()
        self._turn = 0  # which process gets the next connection
        self._is_running = False  # whether processes are replaced
        self._changing = threading.Lock()
        self._acceptor = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._processes = [self._start_process() for _ in range(count)]

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [process.process.pid for process in self._processes]

    def start(self) -> None:
        """Wait until all processes are ready, and give them connections from then on."""
        for process in self._processes:
            while not process.is_ready.wait(0.1):
                if process.process.poll() is not None:
                    raise TransduceError("a process for HTTP did not start; the reason is above")
        self._is_running = True
        self._stop_accepting, self._wake = socket.socketpair()
        self._acceptor.start()

    def stop(self) -> None:
        """Let a load balancer notice, then let the processes answer everything accepted."""
        with self._changing:
            self._is_running = False
        for process in self._processes:
            process.drain()
        time.sleep(self._settings.drain_seconds)

        # Connections that the system has accepted for us would be reset with the socket.
        self._stop_accepting.close()
        self._acceptor.join()
        self._wake.close()
        for connection in accept_all(self._listener):
            self._give(connection)
        self._listener.close()

        for process in self._processes:
            process.stop()
        end = time.monotonic() + self._settings.stop_seconds + REST_SECONDS
        for process in self._processes:
            process.wait(max(0.0, end - time.monotonic()))
        self._models.close()
        self._folder.cleanup()

    def kill(self) -> None:
        """End all processes at once."""
        self._is_running = False
        for process in self._processes:
            process.stop()
            process.wait(0)
        self._folder.cleanup()

    def _start_process(self) -> HttpProcess:
        functions = answers(self._models, self._shared, next(self._numbers))
        return HttpProcess(self._work, functions, self._folder.name, self._replace)

    def _replace(self, ended: HttpProcess) -> None:
        """Start another process instead of one that has ended, unless all have to end."""
        status = ended.process.wait()
        ended.stop()
        mark_process_dead(ended.process.pid, self._folder.name)
        if not self._is_running:
            return
        self._say(f"a process for HTTP ended with status {status}; another one is started")
        time.sleep(PAUSE_SECONDS)
        with self._changing:
            if self._is_running:
                place = self._processes.index(ended)
                self._processes[place] = self._start_process()

    def _accept(self) -> None:
        """Give connections to the processes in turn, until it is told to stop."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._wake:
                        return
                    for connection in accept_all(self._listener):
                        self._give(connection)

    def _give(self, connection: socket.socket) -> None:
        """Give a connection to the next process that takes it, or close it."""
        with connection:
            for _ in self._processes:
                self._turn = (self._turn + 1) % len(self._processes)
                if self._processes[self._turn].give(connection):
                    return


def run_processes(
    models: Models, settings: ServerSettings, listener: socket.socket, count: int, say: Say = print
) -> None:
    """Serve with several processes until a signal asks to stop; a second Ctrl-C stops at once."""
    prepare_process(settings)
    processes = HttpProcesses(models, settings, listener, count, writes_log=True, say=say)
    stop = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            processes.kill()
        stop.set()

    try:
        processes.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handle)
        say(announcement(models, listener))
        stop.wait()
        processes.stop()
    finally:
        processes.kill()


def _describe(model: ServedModel) -> RemoteModel:
    """Return what an HTTP process must know of a model."""
    bundle = model.translator.bundle
    assert bundle
    return RemoteModel(
        name=model.name,
        bundle=bundle,
        search=model.translator.search,
        engine=model.engine,
        source_language=model.source_language,
        target_language=model.target_language,
        parameters=model.parameters,
    )
