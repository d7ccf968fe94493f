"""A web server that replies as a test has scripted, correctly or not."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


def answer(
    content,
    *,
    tag='"first"',
    ranges=True,
    if_range=True,
    declared=None,
    cut=None,
    stall=None,
    drip=None,
    chunked=False,
    first_byte=None,
):
    """Build a reply with this content and these faults.

    tag: the entity tag, if any.  ranges: whether Range is heeded.  if_range: whether If-Range is.  declared: the
    Content-Length that is sent, False for none.  cut: the connection ends after so many bytes.  stall: nothing comes after so
    many.  drip: one byte at a time, so many seconds apart.  first_byte: where the partial reply claims to start.
    """

    def reply(handler):
        start, asked = 0, handler.headers.get("Range", "")
        same = not if_range or handler.headers.get("If-Range") in (None, tag)
        if ranges and same and asked:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        if start and start >= len(content):
            handler.send_error(416)
            return
        body = content[start:]
        handler.send_response(206 if start else 200)
        if start:
            claimed = start if first_byte is None else first_byte
            handler.send_header(
                "Content-Range", f"bytes {claimed}-{len(content) - 1}/{len(content)}"
            )
        if tag:
            handler.send_header("ETag", tag)
        if chunked:
            handler.send_header("Transfer-Encoding", "chunked")
        elif declared is not False:
            handler.send_header("Content-Length", str(len(body) if declared is None else declared))
        handler.end_headers()
        if chunked:
            handler.wfile.write(
                f"{len(body):x}\r\n".encode() + body[:cut] + (b"" if cut else b"\r\n0\r\n\r\n")
            )
            return
        handler.wfile.write(body[: stall if cut is None else cut] if drip is None else b"")
        for byte in body if drip is not None else b"":
            if handler.server.over.wait(drip):
                return
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
        if stall is not None:
            handler.wfile.flush()
            handler.server.over.wait(30)

    return reply


def status(code, **headers):
    """A reply without content."""

    def reply(handler):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return reply


class Server(ThreadingHTTPServer):
    """Answers the requests for a path by the replies of its script; the last one is repeated."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.scripts, self.requests, self.over = {}, [], threading.Event()
        self.address = f"http://127.0.0.1:{self.server_address[1]}"

    def says(self, path, *replies):
        """Set the script of a path, and return its address."""
        self.scripts[path] = list(replies)
        return f"{self.address}{path}"

    def handle_error(self, request, client_address):
        """Ignore clients that close the connection."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.close_connection = True
        self.server.requests.append((self.path, dict(self.headers)))
        script = self.server.scripts.get(self.path, [status(404)])
        (script.pop(0) if len(script) > 1 else script[0])(self)

    def log_message(self, *arguments):
        """Print nothing."""


@pytest.fixture(name="server")
def scripted_server(monkeypatch):
    """A running server, for as long as a test takes."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()
