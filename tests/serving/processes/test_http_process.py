"""A process for HTTP, here in a thread: it takes connections from a socket until that ends."""

import contextlib
import socket
import threading

import pytest

from transduce.serving.models import load_models
from transduce.serving.processes.http_process import CONNECTION, DRAIN, ConnectedServer
from transduce.serving.server import bind, configure
from transduce.serving.service import Service
from transduce.serving.settings import ServerSettings


@pytest.fixture
def connected(bundle):
    """A server that is not started, and the other end of its socket."""
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    service = Service(models, ServerSettings())
    ours, theirs = socket.socketpair()
    with ours:
        yield ConnectedServer(configure(service, None), service, theirs), ours


@contextlib.contextmanager
def client_of(ours):
    """A client whose connection is given to the server."""
    with (
        contextlib.closing(bind("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), timeout=10) as client,
    ):
        with listener.accept()[0] as accepted:
            socket.send_fds(ours, [CONNECTION], [accepted.fileno()])
        client.sendall(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
        yield client


@pytest.mark.parametrize("is_asked", [False, True])
def test_connections_that_arrive_with_the_stop_are_answered(connected, is_asked):
    """The stop is the end of the socket, or a signal."""
    server, ours = connected
    server.should_exit = is_asked
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client_of(ours)) for _ in range(100)]
        ours.close()
        server.run(sockets=[])
        answers = [client.recv(65536) for client in clients]
    assert {answer[:12] for answer in answers} <= {b"HTTP/1.1 503", b"HTTP/1.1 200"}


def test_a_stop_is_announced(connected):
    server, ours = connected
    thread = threading.Thread(target=server.run, kwargs={"sockets": []})
    thread.start()
    with client_of(ours) as client:
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
    ours.send(DRAIN)
    with client_of(ours) as client:
        assert client.recv(65536).startswith(b"HTTP/1.1 503")
    assert thread.is_alive()
    ours.close()
    thread.join(20)
    assert not thread.is_alive()
