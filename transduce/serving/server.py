"""The server process: a socket, uvicorn, and a stop that finishes what was accepted."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType

import uvicorn

from transduce.errors import ConfigError
from transduce.serving.app import create_app
from transduce.serving.guards.connections import limited_protocol
from transduce.serving.models import Models, Say
from transduce.serving.observation import Write, print_line
from transduce.serving.service import Service
from transduce.serving.settings import ServerSettings

REST_SECONDS = 3.0  # of a stop, for the answers to requests that it gives up
INTERRUPTED = 130  # the exit status after a second Ctrl-C
YOUNG_OBJECTS = 20_000  # new objects after which Python looks for garbage; its default is 700


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket, or say why there is none."""
    if not 0 <= port <= 65_535:
        raise ConfigError(f"port is {port}; expected a number from 0 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
        # Connections inherit it: otherwise the body of an answer waits until its head is confirmed,
        # which takes 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the server cannot use port {port} of {host} ({_reason(error)}); choose another "
            "--port or --host"
        ) from None
    return listener


def _reason(error: OSError | UnicodeError) -> str:
    """Return why no socket could be made."""
    if not isinstance(error, OSError):
        return "no host has such a name"
    number = error.errno or 0
    # That of an unknown host is negative, and not one of the system.
    return os.strerror(number) if number > 0 else str(error.strerror)


def run(service: Service, listener: socket.socket, say: Say = print) -> None:
    """Serve until a signal asks to stop; say so when requests can be sent."""
    prepare_process(service.settings)
    server = make_server(service, write=print_line)
    server.on_start = partial(say, announcement(service.models, listener))
    server.run(sockets=[listener])


def announcement(models: Models, listener: socket.socket) -> str:
    """Return what is served, and where."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    names = ", ".join(f"{model.name} ({model.pair})" for model in models.served)
    return f"serving {names} on http://{shown}:{port}"


def prepare_process(settings: ServerSettings) -> None:
    """Let this process have many connections, and look for garbage less often.

    A request makes hundreds of objects. Looking through them, and through all that was loaded, took
    a tenth of the time.
    """
    _allow_many_files(settings.max_connections)
    gc.set_threshold(YOUNG_OBJECTS)
    if "triton" not in sys.modules:  # it complains at the end about objects that are left
        gc.freeze()


def make_server(service: Service, write: Write | None = None) -> Server:
    """Return the server of a service, which is not started yet."""
    return Server(configure(service, write), service)


def configure(service: Service, write: Write | None) -> uvicorn.Config:
    """Return the settings of uvicorn."""
    # It warns of every malformed form, which is answered and counted.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    return uvicorn.Config(
        create_app(service, write),
        http=limited_protocol(service.settings),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(service.settings.stop_seconds + REST_SECONDS),
    )


class Server(uvicorn.Server):
    """A server that stops in order: not ready, no new connections, then the last answers."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self.on_start: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so; signals are handled from here on."""
        await super().startup(sockets)
        self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let a load balancer notice, then answer everything that was accepted."""
        self.service.is_draining = True
        await asyncio.sleep(self.service.settings.drain_seconds)
        listeners = sockets or []
        loop = asyncio.get_running_loop()
        # Those that the event loop has accepted get their protocols before the sockets close.
        for listener in listeners:
            loop.remove_reader(listener)
        await asyncio.sleep(0)
        # Connections that the system has accepted for us would be reset with the socket.
        accepted = [connection for listener in listeners for connection in accept_all(listener)]
        for server in self.servers:
            server.close()
        for listener in listeners:
            listener.close()
        for connection in accepted:
            await loop.connect_accepted_socket(self._new_protocol, connection)
        giving_up = loop.call_later(self.service.settings.stop_seconds, self.service.give_up)
        await super().shutdown(sockets)
        giving_up.cancel()

    def _new_protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on a signal. A second Ctrl-C waits neither for answers nor for threads."""
        if self.should_exit and sig == signal.SIGINT:
            os._exit(INTERRUPTED)
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # a stop that was asked for is a success


def accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield all connections that wait at a socket."""
    listener.setblocking(False)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # none is left
            return
        connection.setblocking(False)
        yield connection


def _allow_many_files(connections: int) -> None:
    """Raise the limit on open files, of which every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_files() -> int:
    """Return how many files and connections this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
