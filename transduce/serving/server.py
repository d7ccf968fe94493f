"""The server process: a socket, uvicorn, and a stop that finishes what was accepted."""

from __future__ import annotations

import os
import socket

import uvicorn

from transduce.errors import ConfigError
from transduce.serving.app import create_app
from transduce.serving.models import Say
from transduce.serving.service import Service


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket, or say why there is none."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else str(error)
        raise ConfigError(
            f"the server cannot use port {port} of {host} ({reason}); choose another --port or "
            "--host"
        ) from None
    return listener


def run(service: Service, listener: socket.socket, say: Say = print) -> None:
    """Serve until a signal asks to stop."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    names = ", ".join(f"{model.name} ({model.pair})" for model in service.models.served)
    say(f"serving {names} on http://{shown}:{port}")
    make_server(service).run(sockets=[listener])


def make_server(service: Service) -> uvicorn.Server:
    """Return the server of a service, which is not started yet."""
    config = uvicorn.Config(create_app(service), http="h11", ws="none", log_level="warning")
    return uvicorn.Server(config)
