"""Several processes for HTTP in front of one that searches.

One Python process cannot parse requests as fast as a GPU translates their sentences. So this
process accepts connections and searches. It gives each connection to one of several processes,
which parse requests, split and tokenize texts, and ask for searches (see `remote`).
"""

from __future__ import annotations

import itertools
import selectors
import signal
import socket
import tempfile
import threading
import time
from dataclasses import replace
from functools import partial
from types import FrameType

from prometheus_client.multiprocess import mark_process_dead

from transduce.cores import available_cores
from transduce.errors import ConfigError, TransduceError
from transduce.serving.models import Models, Say, ServedModel
from transduce.serving.processes.handle import HttpProcess
from transduce.serving.processes.remote import RemoteModel, Work, search_functions
from transduce.serving.server import accept_all, announcement, prepare_process
from transduce.serving.settings import ServerSettings
from transduce.serving.shared import SharedState

MOST_PROCESSES = 4  # unless more are asked for
MOST_ASKED = 64  # each takes 65 MB, and half a second of a core to start
REST_SECONDS = 5.0  # for a process to end, after the time for its last answers
PAUSE_SECONDS = 1.0  # before a process is replaced that has ended
GIVE_SECONDS = 30.0  # until a connection is given up that no process takes
LOOK_SECONDS = 0.2  # between two looks at something that may have changed


def choose_count(wanted: int | None, models: Models) -> int:
    """Return the number of processes for HTTP; 1 means the process that searches."""
    if wanted is None:
        is_fast = any(model.queue.is_streaming for model in models.served)
        return max(1, min(MOST_PROCESSES, available_cores() // 2)) if is_fast else 1
    if not 1 <= wanted <= MOST_ASKED:
        raise ConfigError(f"--processes is {wanted}; expected a number from 1 to {MOST_ASKED}")
    return wanted


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
        self._count = count
        self._say = say
        self._state = SharedState(settings)
        self._work = Work(
            settings=replace(settings.divided(count), drain_seconds=0),
            models=[_describe(model) for model in models.served],
            refused=models.refused,
            writes_log=writes_log,
        )
        self._folder = tempfile.TemporaryDirectory(prefix="transduce-metrics-")
        self._numbers = itertools.count(1)
        self._processes: list[HttpProcess] = []
        self._changing = threading.Lock()  # while processes are started or have to end
        self._is_running = False  # whether a process that ends is replaced
        self._must_end = False  # at once; set by signal handlers, which must not take locks
        self._acceptor = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._stop_accepting, self._wake = socket.socketpair()

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [process.process.pid for process in self._processes]

    def start(self) -> None:
        """Start all processes, and give them connections as soon as they are ready."""
        with self._changing:
            for _ in range(self._count):
                if self._must_end:
                    return
                self._processes.append(self._start_process())
        while not all(process.is_ready.wait(LOOK_SECONDS) for process in self._processes):
            if self._must_end:
                return
            self._refuse_ended()
        with self._changing:
            self._refuse_ended()
            self._is_running = True
        self._acceptor.start()

    def stop(self) -> None:
        """Let a load balancer notice, then let the processes answer everything accepted."""
        with self._changing:
            self._is_running = False
        for process in self._processes:
            process.drain()
        self._wait(self._settings.drain_seconds)

        # Connections that the system has accepted for us would be reset with the socket.
        self._stop_accepting.close()
        self._acceptor.join()
        for connection in accept_all(self._listener):
            self._give(connection)
        self._listener.close()

        for process in self._processes:
            process.stop()
        end = time.monotonic() + self._settings.stop_seconds + REST_SECONDS
        for process in self._processes:
            process.wait(max(0.0, end - time.monotonic()))
        self._models.close()
        self.kill()

    def hurry(self) -> None:
        """Do not wait for anything any more; a signal handler may call it."""
        self._must_end = True
        for process in self._processes:
            process.process.kill()

    def kill(self) -> None:
        """End all processes at once, and leave nothing behind."""
        with self._changing:
            self._is_running = False
        self._must_end = True
        for process in self._processes:
            process.wait(0)
        self._stop_accepting.close()
        self._wake.close()
        self._folder.cleanup()

    def _start_process(self) -> HttpProcess:
        number = next(self._numbers)
        functions = search_functions(self._models, number) | self._state.functions(number)
        on_end = partial(self._replace, number)
        return HttpProcess(self._work, functions, self._folder.name, on_end)

    def _refuse_ended(self) -> None:
        """Raise an error if a process has ended that has to be started."""
        if any(process.process.poll() is not None for process in self._processes):
            raise TransduceError("a process for HTTP did not start; the reason is above")

    def _replace(self, number: int, ended: HttpProcess) -> None:
        """Start another process instead of one that has ended, unless all have to end."""
        status = ended.process.wait()
        mark_process_dead(ended.process.pid, self._folder.name)
        self._state.forget(number)
        with self._changing:
            if self._must_end or not self._is_running:
                return
        self._say(f"a process for HTTP ended with status {status}; another one is started")
        ended.wait(0)
        while True:
            self._wait(PAUSE_SECONDS)
            with self._changing:
                if not self._is_running:
                    return
                try:
                    self._processes[self._processes.index(ended)] = self._start_process()
                    return
                except OSError as error:
                    self._say(f"no other process for HTTP could be started ({error.strerror})")

    def _wait(self, seconds: float) -> None:
        """Wait, unless all must end at once."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._must_end:
            time.sleep(min(LOOK_SECONDS, seconds))

    def _accept(self) -> None:
        """Give connections to the processes, until it is told to stop."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._wake in ready:
                    return
                accepted = 0
                for connection in accept_all(self._listener):
                    self._give(connection)
                    accepted += 1
                if not accepted:  # too many files are open
                    time.sleep(LOOK_SECONDS)

    def _give(self, connection: socket.socket) -> None:
        """Give a connection to the process with the fewest that takes it.

        A process that is behind with its connections takes no more for a moment. Then others wait
        in the backlog of the system.
        """
        end = time.monotonic() + GIVE_SECONDS
        with connection:
            while time.monotonic() < end and not self._must_end:
                for process in sorted(self._processes, key=HttpProcess.count_open):
                    if process.give(connection):
                        return
                time.sleep(0.005)


def run_processes(
    models: Models, settings: ServerSettings, listener: socket.socket, count: int, say: Say = print
) -> None:
    """Serve with several processes until a signal asks to stop; a second Ctrl-C stops at once."""
    prepare_process(settings)
    processes = HttpProcesses(models, settings, listener, count, writes_log=True, say=say)
    signals: list[int] = []
    is_started = False

    def handle(number: int, _: FrameType | None) -> None:
        is_second = bool(signals) and number == signal.SIGINT
        signals.append(number)
        if is_second or not is_started:
            processes.hurry()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    try:
        processes.start()
        if signals:
            return
        is_started = True
        say(announcement(models, listener))
        # A wait without an end might not notice a signal that another thread has got.
        while not signals:
            time.sleep(LOOK_SECONDS)
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
