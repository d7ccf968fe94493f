"""A server around models of the test process, and a client that says exactly what it sends."""

import contextlib
import http.client
import json
import threading
import time
from functools import partial

from transduce.serving.processes.supervisor import HttpProcesses
from transduce.serving.server import bind, make_server
from transduce.serving.service import Service
from transduce.serving.settings import ServerSettings


class Running:
    """A server that runs; `get` and `post` talk to it."""

    def __init__(self, service, port, stop=None):
        self.service = service
        self.port = port
        self.stop = stop
        self.url = f"http://127.0.0.1:{port}"

    def request(self, method, path, body=None, headers=None, timeout=20):
        """The status, the headers (lower case) and the bytes of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, names, answer.read()

    def get(self, path, **options):
        status, _, content = self.request("GET", path, **options)
        return status, json.loads(content)

    def post(self, path, value, headers=None, **options):
        headers = {"content-type": "application/json", **(headers or {})}
        status, _, content = self.request("POST", path, json.dumps(value), headers, **options)
        return status, json.loads(content)


@contextlib.contextmanager
def running(models, *, write=None, **settings):
    """Serve models on a free port until the end of the block."""
    service = Service(models, ServerSettings(**settings))
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = make_server(service, write)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield Running(service, port, stop=partial(setattr, server, "should_exit", True))
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


@contextlib.contextmanager
def running_processes(models, count=2, *, say=print, **settings):
    """The same with processes for HTTP, which are in the attribute `processes`."""
    listener = bind("127.0.0.1", 0)
    server = Running(None, listener.getsockname()[1])
    server.processes = HttpProcesses(models, ServerSettings(**settings), listener, count, say=say)
    try:
        server.processes.start()
        yield server
    finally:
        server.processes.stop()
