"""A process that speaks HTTP for another one, which accepts the connections and searches.

It is started with the numbers of two sockets. From the first one come connections, each with the
byte `CONNECTION`; the byte `DRAIN` announces a stop, and the end of the stream is the stop. Through
the second one this process first learns what to serve, and then asks its questions.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from multiprocessing.connection import Connection

import uvicorn

from transduce.serving.models import Models, ServedModel
from transduce.serving.observation import print_line
from transduce.serving.processes.channel import Asking
from transduce.serving.processes.remote import RemoteModel, RemoteQueue, RemoteShared, Work
from transduce.serving.server import Server, configure, prepare_process
from transduce.serving.service import Service
from transduce.translation.translator import Translator

CONNECTION = b"c"
DRAIN = b"d"
MOST_AT_ONCE = 64  # connections that are read at once


class ConnectedServer(Server):
    """A server that gets its connections from another process."""

    def __init__(
        self, config: uvicorn.Config, service: Service, connections: socket.socket
    ) -> None:
        super().__init__(config, service)
        self._connections = connections
        self._beginning: set[asyncio.Task[object]] = set()  # connections that are set up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and take connections from here on."""
        await super().startup(sockets)
        self._connections.setblocking(False)
        asyncio.get_running_loop().add_reader(self._connections, self._receive)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer everything that has arrived."""
        while self._receive():
            pass
        asyncio.get_running_loop().remove_reader(self._connections)
        self._connections.close()
        await asyncio.gather(*self._beginning)
        await super().shutdown(sockets)

    def _receive(self) -> bool:
        """Take connections and messages; return whether there may be more."""
        try:
            data, files, _, _ = socket.recv_fds(self._connections, MOST_AT_ONCE, MOST_AT_ONCE)
        except OSError:
            return False
        loop = asyncio.get_running_loop()
        for file in files:
            connection = socket.socket(fileno=file)
            connection.setblocking(False)
            beginning = loop.connect_accepted_socket(self._new_protocol, connection)
            task: asyncio.Task[object] = loop.create_task(beginning)
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)
        if DRAIN in data:
            self.service.is_draining = True
        if not data:
            self.should_exit = True
            loop.remove_reader(self._connections)
        return bool(data)


def serve(connections: socket.socket, questions: Connection) -> None:
    """Serve until the other process ends the stream of connections."""
    work: Work = questions.recv()
    prepare_process(work.settings)
    asking = Asking(questions)
    models = Models([_served(model, asking) for model in work.models], work.refused)
    service = Service(models, work.settings, RemoteShared(asking, work.settings))
    config = configure(service, print_line if work.writes_log else None)
    server = ConnectedServer(config, service, connections)
    server.on_start = lambda: asking.ask("report_start")
    server.run(sockets=[])


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


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), Connection(int(sys.argv[2])))
