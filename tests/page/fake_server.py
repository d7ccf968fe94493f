"""A server with the HTTP interface of transduce serve and no model, for tests of the page."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files

from . import example

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css", "js": "text/javascript"}
MODELS = [
    {"name": "example", "source_language": "en", "target_language": "de", "default": True, "parameters": 65_000_000, "engine": "torch"},
    {"name": "other", "source_language": "en", "target_language": "fr", "default": False, "parameters": 65_000_000, "engine": "ctranslate2"},
    {"name": "back", "source_language": "de", "target_language": "en", "default": False, "parameters": 65_000_000, "engine": "ctranslate2"},
    {"name": "nordic", "source_language": "nb", "target_language": "de", "default": False, "parameters": 65_000_000, "engine": "torch"},
    {"name": "british", "source_language": "en-GB", "target_language": "nl", "default": False, "parameters": 65_000_000, "engine": "torch"},
    {"name": "unknown", "source_language": None, "target_language": None, "default": False, "parameters": 65_000_000, "engine": "torch"},
]  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/":
            self.send_static("index.html")
        elif path.startswith("/static/"):
            self.send_static(path.removeprefix("/static/"))
        elif path == "/v1/models":
            self.send_json({"models": MODELS})
        elif path == "/v1/runs":
            self.send_json({"runs": []})
        else:
            self.send_json({"error": f"{path} is not known"}, 404)

    def do_POST(self):
        options = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, options))
        if not options.get("text", "").strip():
            self.send_json({"error": "the text is empty; send at least one word"}, 400)
        elif self.path == "/v1/translate" and options.get("stream"):
            self.send_events(example.translation_answer(options))
        elif self.path == "/v1/translate":
            self.send_json(example.translation_answer(options))
        elif self.path == "/v1/attention" and options.get("model") == "other":
            self.send_json(
                {"error": "other has no weights for torch; export it from its bundle"}, 400
            )
        elif self.path == "/v1/attention":
            known = {
                name: options[name] for name in ("text", "sentence", "without") if name in options
            }
            self.send_json(example.inspection_of(**known))
        else:
            self.send_json({"error": f"{self.path} is not known"}, 404)

    def send_static(self, name):
        body = files("transduce.page").joinpath("static").joinpath(name).read_bytes()
        self.send_body(body, TYPES[name.rpartition(".")[2]])

    def send_json(self, data, status=200):
        self.send_body(json.dumps(data).encode(), "application/json", status)

    def send_body(self, body, kind, status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body)

    def send_events(self, answer):
        sentences = answer["translations"][0]["sentences"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number, sentence in enumerate(sentences):
            data = {"index": 0, "sentence": number, "of": len(sentences), **sentence}
            self.wfile.write(f"event: sentence\ndata: {json.dumps(data)}\n\n".encode())
        self.wfile.write(f"event: done\ndata: {json.dumps(answer)}\n\n".encode())
        self.close_connection = True

    def log_message(self, *words):
        pass


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass  # the page ends requests whose answer nobody waits for


@contextmanager
def serving():
    server = FakeServer(("127.0.0.1", 0), Handler)
    server.asked = []  # (path, body) of every request
    server.address = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
