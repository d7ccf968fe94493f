"""The process: it starts with one line, answers what it accepted, and stops."""

import asyncio
import contextlib
import gc
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.serving.running import running
from transduce.errors import ConfigError
from transduce.serving.models import load_models
from transduce.serving.server import bind, make_server
from transduce.serving.service import Service
from transduce.serving.settings import ServerSettings


def test_a_port_in_use_is_reported_in_one_line():
    with contextlib.closing(bind("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot use port {port} of 127.0.0.1 .*in use"):
            bind("127.0.0.1", port)
    with pytest.raises(ConfigError, match="port is 99999"):
        bind("127.0.0.1", 99999)
    with pytest.raises(ConfigError, match=r"port 8000 of no-such-host.invalid \([A-Z][a-z ]+"):
        bind("no-such-host.invalid", 8000)


@pytest.mark.parametrize("host", ["a" * 70, "example..org", "ü..org"])
def test_a_host_that_cannot_have_such_a_name_is_reported_in_one_line(host):
    with pytest.raises(ConfigError, match=r"port 8000 of .* \(no host has such a name\); choose"):
        bind(host, 8000)


def test_the_body_of_an_answer_does_not_wait_until_its_head_is_confirmed():
    with (
        contextlib.closing(bind("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@contextlib.contextmanager
def process(bundle, *options, env=(), **settings):
    """`transduce serve` as a process: itself and its port."""
    command = [sys.executable, "-m", "transduce", "serve", str(bundle.path), "--port", "0"]
    started = subprocess.Popen(
        [*command, "--engine", "torch", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **dict(env)},
        **settings,
    )
    try:
        line = started.stderr.readline()
        found = re.search(r"serving demo \(en-de\) on http://127\.0\.0\.1:(\d+)", line)
        assert found, line
        yield started, int(found[1])
    finally:
        started.kill()
        started.communicate()


def ask(port, answers, stop, text):
    """Send one request after another, and note each answer, or what went wrong."""
    while not stop.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        accepted = False
        try:
            connection.connect()
            accepted = True
            body = json.dumps({"text": text})
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/translate", body, headers)
            answers.append(connection.getresponse().status)
        except ConnectionRefusedError:
            return
        except OSError as error:
            answers.append(f"accepted: {accepted}, {error!r}")
            return
        finally:
            connection.close()


def stop_under_load(bundle, text="42 hours. 12 kilometers.", clients=8, after=0.5, options=()):
    """The answers that clients got while the server was stopped, its exit status and the seconds."""
    answers, stop = [], threading.Event()
    with process(bundle, *options) as (server, port):
        threads = [
            threading.Thread(target=ask, args=(port, answers, stop, text)) for _ in range(clients)
        ]
        for thread in threads:
            thread.start()
        time.sleep(after)
        start = time.monotonic()
        server.send_signal(signal.SIGTERM)
        status = server.wait(40)
        seconds = time.monotonic() - start
        stop.set()
        for thread in threads:
            thread.join(10)
    return answers, status, seconds


def test_a_stop_loses_no_accepted_request(bundle):
    answers, status, seconds = stop_under_load(bundle)
    assert status == 0
    assert answers
    assert set(answers) == {200}
    assert seconds < 30


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_refuses_what_takes_too_long(bundle, stream, caplog):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    go = threading.Event()
    search = models.default.queue.engine.search
    is_searching = threading.Event()

    def held_search(*args, **options):
        is_searching.set()
        assert go.wait(20)
        return search(*args, **options)

    models.default.queue.engine.search = held_search
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running(models, stop_seconds=0.2))
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        body = json.dumps({"text": "42 hours", "stream": stream})
        connection.request("POST", "/v1/translate", body, {"content-type": "application/json"})
        assert is_searching.wait(20)
        server.stop()
        answer = connection.getresponse()
        content = answer.read().decode()
        connection.close()
        go.set()
    assert '{"error": "the server is stopping"}' in content.replace('":"', '": "')
    if stream:
        assert content.startswith("event: error\n")
    else:
        assert (answer.status, answer.getheader("retry-after")) == (503, "5")
    assert caplog.records == []


def test_a_second_interrupt_ends_the_process_at_once(bundle):
    text = " ".join(f"{number} hours and 25 minutes." for number in range(3_000))
    with process(bundle) as (server, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with contextlib.closing(connection):
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/translate", json.dumps({"text": text}), headers)
            time.sleep(0.5)
            server.send_signal(signal.SIGINT)
            time.sleep(0.3)
            server.send_signal(signal.SIGINT)
            assert server.wait(5) == 130
            assert server.stderr.read() == ""


@pytest.mark.parametrize("steps", range(5))
def test_connections_that_wait_at_a_stop_are_answered(bundle, steps):
    """The system accepts connections for a server that is too busy to notice them.

    Or the event loop has accepted them, and was not able to do more in some steps.
    """
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    listener = bind("127.0.0.1", 0)
    server = make_server(Service(models, ServerSettings()))

    async def stop_with_a_connection_that_waits():
        await server.startup([listener])
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
            client.setblocking(False)
            for _ in range(steps):
                await asyncio.sleep(0)
            await server.shutdown([listener])
            # A connection that was lost never gets an answer.
            return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 65536), 5)

    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    answer = asyncio.run(stop_with_a_connection_that_waits())
    assert answer.startswith((b"HTTP/1.1 503", b"HTTP/1.1 200"))


def test_a_kept_connection_may_send_a_request_that_is_on_its_way_at_a_stop(bundle):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/health")
            assert connection.getresponse().read()
            server.stop()
            while not server.service.is_draining:
                time.sleep(0.01)
            time.sleep(0.3)
            connection.request("GET", "/health")
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("connection")) == (200, "close")


def test_a_stopping_server_is_not_ready_and_closes_connections(bundle):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models) as server:
        assert server.get("/ready") == (200, {"status": "ready"})
        server.service.is_draining = True
        status, headers, _ = server.request("GET", "/ready")
        assert (status, headers["connection"]) == (503, "close")
        assert server.get("/health")[0] == 200


def test_health_turns_bad_when_the_engine_is_dead(bundle):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models) as server:
        models.default.queue.close()
        assert server.get("/health") == (503, {"status": "dead"})
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 503


def test_a_client_that_has_gone_leaves_the_queue_and_no_line_in_the_log(bundle, caplog):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    queue = models.default.queue
    go = threading.Event()
    search = queue.engine.search

    def held_search(*args, **options):
        assert go.wait(20)
        return search(*args, **options)

    queue.engine.search = held_search
    with running(models) as server:
        body = json.dumps({"text": "42 hours\n" * 200})
        for stream in (False, True):
            body = json.dumps({"text": ["42 hours"] * 200, "stream": stream})
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/translate", body, headers)
            end = time.monotonic() + 10
            while not stream and not queue.waiting_tokens and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.1)
            connection.close()
            while queue.waiting_tokens and time.monotonic() < end:
                time.sleep(0.01)
            assert queue.waiting_tokens == 0
        go.set()
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200
    gc.collect()
    assert caplog.records == []
