"""A process that speaks HTTP for another one, which accepts the connections and searches.

It is started with the numbers of two sockets. From the first one come connections, each with the
byte `CONNECTION`; the byte `DRAIN` announces a stop, and the end of the stream is the stop. This
process sends a byte back for each connection that is closed. Through the second socket it first
learns what to serve, and then asks its questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn

from transduce.serving.models import Models, ServedModel
from transduce.serving.observation import METRICS_FOLDER, Write, print_line
from transduce.serving.processes.channel import Asking
from transduce.serving.processes.remote import RemoteModel, RemoteQueue, Work
from transduce.serving.server import Server, configure, most_files, prepare_process
from transduce.serving.service import Service
from transduce.serving.shared import Shared
from transduce.translation.translator import Translator

CONNECTION = b"c"
DRAIN = b"d"
CLOSED = b"x"
SPARE_FILES = 64  # open files besides connections


class ConnectedServer(Server):
    """A server that gets its connections from another process, which also tells it to stop."""

    def __init__(
        self, config: uvicorn.Config, service: Service, connections: socket.socket
    ) -> None:
        super().__init__(config, service)
        self._connections = connections
        self._beginning: set[asyncio.Task[object]] = set()  # connections that are set up
        self._most = max(1, most_files() - SPARE_FILES)
        self._is_reading = False
        self._unreported = 0  # connections that were closed

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and take connections from here on."""
        await super().startup(sockets)
        self._connections.setblocking(False)
        self._read_connections(True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer everything that has arrived."""
        self._receive()
        self._read_connections(False)
        await asyncio.gather(*self._beginning, return_exceptions=True)
        await super().shutdown(sockets)
        asyncio.get_running_loop().remove_writer(self._connections)
        self._connections.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    def stop_soon(self) -> None:
        """Stop because the other process has gone."""
        self.should_exit = True

    def _read_connections(self, is_reading: bool) -> None:
        """Take connections from now on, or leave them where they are."""
        if is_reading == self._is_reading:
            return
        self._is_reading = is_reading
        loop = asyncio.get_running_loop()
        if is_reading:
            loop.add_reader(self._connections, self._receive)
        else:
            loop.remove_reader(self._connections)

    def _receive(self) -> None:
        """Take all connections and messages that have arrived, if there is room for them."""
        loop = asyncio.get_running_loop()
        while True:
            if len(self.server_state.connections) + len(self._beginning) >= self._most:
                self._read_connections(False)
                return
            try:
                data, files, _, _ = socket.recv_fds(self._connections, 1, 1)
            except OSError:
                return
            for file in files:
                connection = socket.socket(fileno=file)
                connection.setblocking(False)
                beginning = loop.connect_accepted_socket(self._new_protocol, connection)
                task: asyncio.Task[object] = loop.create_task(beginning)
                self._beginning.add(task)
                task.add_done_callback(self._beginning.discard)
            if data == DRAIN:
                self.service.is_draining = True
            if not data:
                self.should_exit = True
                self._read_connections(False)
                return

    def _new_protocol(self) -> asyncio.Protocol:
        """Return the protocol of a connection, which reports when that is closed."""
        protocol = super()._new_protocol()
        forget = protocol.connection_lost

        def connection_lost(error: Exception | None) -> None:
            forget(error)
            self._unreported += 1
            self._report_closed()
            if not self.should_exit:
                self._read_connections(True)

        protocol.connection_lost = connection_lost  # type: ignore[method-assign, assignment]
        return protocol

    def _report_closed(self) -> None:
        """Report closed connections, now or as soon as the socket has room."""
        if self._connections.fileno() < 0:  # this server has stopped
            return
        try:
            self._unreported -= self._connections.send(CLOSED * self._unreported)
        except BlockingIOError:
            pass
        except OSError:  # the other process has gone
            self._unreported = 0
        loop = asyncio.get_running_loop()
        if self._unreported:
            loop.add_writer(self._connections, self._report_closed)
        else:
            loop.remove_writer(self._connections)


def serve(connections: socket.socket, questions: Connection, folder: Path) -> None:
    """Serve until the other process ends the stream of connections.

    Args:
        connections: Where connections come from.
        questions: Where questions are asked.
        folder: Where metrics are; without the other process, the last one removes it.
    """
    parent = os.getppid()
    try:
        work: Work = questions.recv()
    except (EOFError, OSError):
        return  # the other process has gone
    prepare_process(work.settings)
    asking = Asking(questions)
    models = Models([_served(model, asking) for model in work.models], work.refused)
    service = Service(models, work.settings, Shared(work.settings, asking.ask_meanwhile))
    config = configure(service, _locked(folder) if work.writes_log else None)
    server = ConnectedServer(config, service, connections)
    server.on_start = lambda: asking.ask("report_start")
    asking.on_close = server.stop_soon
    if asking.is_open:
        server.run(sockets=[])
    if os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)


def _locked(folder: Path) -> Write:
    """Return a function that writes a line of the access log, one process at a time.

    A pipe tears long lines apart if several processes write to it.
    """
    lock = (folder / "log.lock").open("w")

    def write(line: str) -> None:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            print_line(line)
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)

    return write


def _served(model: RemoteModel, asking: Asking) -> ServedModel:
    queue = RemoteQueue(asking, model.name, model.engine)
    translator = Translator(model.bundle, engine=queue, search=model.search)
    return ServedModel(
        name=model.name,
        translator=translator,
        direct=translator,
        engine=model.engine,
        source_language=model.source_language,
        target_language=model.target_language,
        parameters=model.parameters,
    )


def main(arguments: list[str]) -> None:
    """Be such a process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the other process decides when this one stops
    connections, questions = map(int, arguments)
    folder = Path(os.environ[METRICS_FOLDER])
    serve(socket.socket(fileno=connections), Connection(questions), folder)
