"""Limits: slow, large, many and unknown clients, and what is written down about all of them."""

import asyncio
import contextlib
import errno
import http.client
import json
import socket
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from tests.serving.apis.test_files import upload
from tests.serving.running import running
from transduce.errors import ConfigError, InputError
from transduce.serving.apis import files
from transduce.serving.guards.connections import LimitedProtocol
from transduce.serving.guards.keys import read_keys
from transduce.serving.models import load_models
from transduce.serving.queue.turns import QueueSettings
from transduce.serving.settings import ServerSettings

REQUEST = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def make_server(bundle):
    """Serve the model with other settings until the end of the block."""

    def make(**settings):
        models = load_models([bundle.path], engine="torch", say=lambda message: None)
        return running(models, **settings)

    return make


@pytest.fixture(scope="module")
def strict(make_server):
    """A server that does not wait for long."""
    with make_server(
        header_seconds=0.5,
        body_seconds=0.5,
        send_seconds=0.5,
        max_body=10_000,
        max_characters=2_000,
        max_texts=5,
        max_connections=20,
        requests_per_minute=0,
    ) as server:
        yield server


def connect(server):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def answer_of(connection):
    """The status of the answer, and all of it, when the server has closed the connection."""
    content = b""
    try:
        while part := connection.recv(65536):
            content += part
    except ConnectionResetError:
        pass
    return int(content.split(b" ", 2)[1]) if content else 0, content


def seconds_until_cut(connection, sent):
    """How long a client can go on sending."""
    start = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - start < 5:
            connection.sendall(sent)
            time.sleep(0.05)
    return time.monotonic() - start


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/transl", b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: "]
)
def test_a_client_that_never_ends_its_headers_is_cut(strict, sent):
    with connect(strict) as connection:
        start = time.monotonic()
        connection.sendall(sent)
        status, content = answer_of(connection)
        assert status == 408
        assert json.loads(content.partition(b"\r\n\r\n")[2]).keys() == {"error"}
        assert 0.3 < time.monotonic() - start < 5


def test_headers_that_trickle_are_cut_although_bytes_arrive(strict):
    with connect(strict) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert seconds_until_cut(connection, b"x: y\r\n") < 3


def test_a_second_request_on_a_connection_has_the_same_deadline(strict):
    with connect(strict) as connection:
        connection.sendall(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /rea")
        assert answer_of(connection)[0] == 408


@pytest.mark.parametrize("trickle", [False, True])
def test_a_body_that_is_not_complete_in_time_is_cut(strict, trickle):
    with connect(strict) as connection:
        start = time.monotonic()
        connection.sendall(REQUEST + b"content-length: 500\r\n\r\n{")
        if trickle:
            assert seconds_until_cut(connection, b" ") < 3
            return
        status, content = answer_of(connection)
        assert status == 408
        assert b"connection: close" in content
        assert time.monotonic() - start < 5


def connect_with_little_memory(server):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", server.port))
    return connection


def test_a_client_that_reads_nothing_is_cut_however_little_is_left_to_send(strict, monkeypatch):
    transports = []
    connection_made = LimitedProtocol.connection_made

    def noting(self, transport):
        connection_made(self, transport)
        transports.append(transport)

    monkeypatch.setattr(LimitedProtocol, "connection_made", noting)
    with connect_with_little_memory(strict) as connection:
        for _ in range(2_000):
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n")
            time.sleep(0.005)
            if transports and transports[0].get_write_buffer_size():
                break
        assert 0 < transports[0].get_write_buffer_size() < 65536
        assert seconds_until_cut(connection, b"\r\n") < 3


def test_a_client_that_reads_slowly_but_steadily_gets_all(strict):
    data = b"x" * 12_000_000
    name = asyncio.run(strict.service.shared.add_file(data, ".txt"))
    with connect_with_little_memory(strict) as connection:
        connection.sendall(f"GET /download_file/{name} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        received = 0
        while received < len(data) and (part := connection.recv(300_000)):
            received += len(part)
            time.sleep(0.01)
    assert received > len(data)


def test_a_body_that_is_too_large_is_refused_announced_or_not(strict):
    with connect(strict) as connection:
        connection.sendall(REQUEST + b"content-length: 10001\r\n\r\n")
        assert answer_of(connection)[0] == 413
    with connect(strict) as connection:
        connection.sendall(REQUEST + b"transfer-encoding: chunked\r\n\r\n")
        connection.sendall(b"2711\r\n" + b"a" * 10_001 + b"\r\n")
        assert answer_of(connection)[0] == 413


def test_a_refusal_reaches_a_client_that_still_sends(strict):
    head = b"POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"
    with connect(strict) as connection:
        connection.sendall(head)
        time.sleep(0.2)
        connection.sendall(b"not read\n")
        # The connection stays usable, because the whole body was read.
        connection.sendall(b"GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        status, content = answer_of(connection)
        assert status == 404
        assert b"HTTP/1.1 200" in content


def test_a_client_whose_body_is_too_large_gets_the_answer(strict):
    """It sends more than a socket holds before it reads."""
    for _ in range(10):
        body = json.dumps({"text": "a" * 5_000_000})
        status, answer = strict.post("/v1/translate", json.loads(body))
        assert (status, answer["error"][:26]) == (413, "the body is too large; at ")


def test_texts_that_are_too_long_or_too_many_are_refused(strict):
    assert strict.post("/v1/translate", {"text": "a" * 2_001})[0] == 413
    assert strict.post("/v1/translate", {"text": ["a"] * 6})[0] == 413
    body = {"q": "a" * 2_001, "source": "en", "target": "de"}
    message = "Invalid request: request (2001) exceeds text limit (2000)"
    assert strict.post("/translate", body) == (400, {"error": message})


def test_too_many_connections_are_refused_and_the_others_stay(strict):
    connections = [connect(strict) for _ in range(20)]
    try:
        time.sleep(0.1)
        with connect(strict) as one_too_many:
            status, content = answer_of(one_too_many)
        assert status == 503
        assert b"retry-after: " in content
        connections[0].sendall(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
        assert connections[0].recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n\r\n" + b"\x00" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS handshake
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
        REQUEST + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=range(7),
)
def test_what_is_not_http_is_refused_and_the_server_goes_on(strict, garbage):
    with connect(strict) as connection:
        connection.sendall(garbage)
        assert answer_of(connection)[0] in (400, 408, 431)
    assert strict.get("/ready")[0] == 200


def test_keys_are_needed_where_texts_are_and_nowhere_else(make_server):
    with make_server(api_keys=frozenset({"secret", "other"})) as server:
        body = {"text": "42 hours"}
        assert server.post("/v1/translate", body)[0] == 401
        for key, status in (("secret", 200), ("other", 200), ("secre", 403), ("\xff", 403)):
            headers = {"authorization": f"Bearer {key}"}
            assert server.post("/v1/translate", body, headers)[0] == status
        libre = {"q": "42 hours", "source": "en", "target": "de"}
        assert server.post("/translate", libre)[0] == 400
        wrong = server.post("/translate", {**libre, "api_key": "wrong"})
        assert wrong == (403, {"error": "Invalid API key"})
        assert server.post("/translate", {**libre, "apiKey": "secret"})[0] == 200
        deepl = {"text": ["42 hours"], "target_lang": "DE"}
        missing = "the request has no API key; send it as: Authorization: DeepL-Auth-Key KEY"
        assert server.post("/v2/translate", deepl) == (403, {"message": missing})
        assert server.get("/v2/usage") == (403, {"message": missing})
        headers = {"authorization": "DeepL-Auth-Key other"}
        assert server.post("/v2/translate", deepl, headers)[0] == 200
        assert server.get("/v1/runs")[0] == 401
        for path in ("/", "/health", "/ready", "/metrics", "/languages", "/v1/models"):
            assert server.request("GET", path)[0] == 200


def test_a_caller_that_is_too_fast_is_slowed_down(make_server):
    keys = frozenset({"one", "two"})
    with make_server(api_keys=keys, requests_per_minute=3) as server:
        body = json.dumps({"text": "42"})
        answers = []
        for key in ("one", "one", "one", "one", "two"):
            headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
            answers.append(server.request("POST", "/v1/translate", body, headers))
        assert [status for status, _, _ in answers] == [200, 200, 200, 429, 200]
        _, headers, content = answers[3]
        assert 0 < int(headers["retry-after"]) <= 20
        assert json.loads(content) == {"error": "Slowdown: 3 per 1 minute"}


def test_who_guesses_keys_is_slowed_down_and_the_others_are_not(make_server):
    keys = frozenset({"secret"})
    with make_server(api_keys=keys, requests_per_minute=2) as server:
        guesses = [{"Authorization": f"Bearer {number}"} for number in range(3)]
        statuses = [server.post("/v1/translate", {"text": "42"}, guess)[0] for guess in guesses]
        assert statuses == [403, 403, 429]
        key = {"Authorization": "Bearer secret"}
        assert server.post("/v1/translate", {"text": "42"}, key)[0] == 200


def test_metrics_and_the_log_hold_neither_texts_nor_keys_nor_made_up_paths(make_server, capsys):
    with make_server(api_keys=frozenset({"secret-key"}), write=print) as server:
        key = {"authorization": "Bearer secret-key"}
        server.post("/v1/translate", {"text": "hidden words"}, key)
        server.request("POST", "/translate?q=hidden+words&api_key=secret-key")
        server.request("GET", "/made-up-path")
        _, _, metrics = server.request("GET", "/metrics")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    written = metrics.decode() + json.dumps(lines)
    for word in ("hidden", "secret-key", "made-up"):
        assert word not in written
    assert "127.0.0.1" not in metrics.decode()
    assert [(line["path"], line["status"]) for line in lines] == [
        ("/v1/translate", 200),
        ("/translate", 400),
        ("other", 404),
        ("/metrics", 200),
    ]
    assert lines[0]["characters"] == len("hidden words")
    counted = 'transduce_requests_total{method="POST",path="/v1/translate",status="200"} 1.0'
    assert counted in metrics.decode()
    assert 'transduce_queue_tokens{model="demo"} 0.0' in metrics.decode()


def test_only_texts_that_were_answered_count_as_used(make_server):
    with make_server(max_requests=1) as server:
        body = {"text": ["42 hours"], "source_lang": "EN", "target_lang": "DE"}
        with server.service._places:
            assert server.post("/v2/translate", body)[0] == 503
        assert server.get("/v2/usage")[1]["character_count"] == 0
        assert server.post("/v2/translate", body)[0] == 200
        stream = json.dumps({"text": "12 kilometers", "stream": True})
        headers = {"content-type": "application/json"}
        assert server.request("POST", "/v1/translate", stream, headers)[0] == 200
        time.sleep(0.1)  # an answer is counted after it was sent
        assert server.get("/v2/usage")[1]["character_count"] == len("42 hours12 kilometers")


def test_texts_are_logged_only_if_that_was_asked_for(make_server, capsys):
    with make_server(log_text=True, write=print) as server:
        server.post("/v1/translate", {"text": "42 hours"})
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["text"] == ["42 hours"]


def test_requests_are_answered_although_the_log_cannot_be_written(make_server, capsys):
    lines = []

    def write(line):
        lines.append(line)
        if len(lines) != 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    with make_server(write=write) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        with contextlib.closing(connection):
            for count in range(1, 6):
                connection.request("GET", "/ready")
                assert connection.getresponse().read()
                while len(lines) < count:
                    time.sleep(0.01)
    # Once before and once after the line that could be written.
    message = (
        "transduce: the access log cannot be written (No space left on device); lines are lost"
    )
    assert capsys.readouterr().err.splitlines() == [message] * 2


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("42 hours", 503, "the server is too busy to translate a sentence within 0.1 seconds"),
        ("42 hours\n12 kilometers", 413, "the translation of 2 sentences took longer than 0.1"),
    ],
)
def test_an_answer_that_would_take_too_long_is_given_up(make_server, text, status, message):
    requests = {
        "/v1/translate": {"text": text},
        "/translate": {"q": text, "source": "en", "target": "de"},
        "/v2/translate": {"text": [text], "source_lang": "EN", "target_lang": "DE"},
    }
    with make_server(answer_seconds=0.1) as server:
        go = threading.Event()
        engine = server.service.models.default.queue.engine
        search = engine.search
        engine.search = lambda *args, **options: go.wait(20) and search(*args, **options)
        for path, body in requests.items():
            content_type = {"content-type": "application/json"}
            found, headers, answer = server.request("POST", path, json.dumps(body), content_type)
            assert (found, "retry-after" in headers) == (status, status == 503)
            assert message in answer.decode()
        go.set()


def test_more_requests_than_the_server_can_hold_are_refused(make_server):
    with make_server(max_requests=1) as server:
        for stream in (False, True):
            with server.service._places:
                status, answer = server.post("/v1/translate", {"text": "42", "stream": stream})
            assert (status, answer.keys()) == (503, {"error"})
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200


def test_a_document_keeps_its_place_when_its_client_has_gone(make_server, monkeypatch):
    """Its memory is free when the thread has ended, which cannot be cancelled everywhere."""
    go = threading.Event()
    monkeypatch.setattr(files, "translate_bytes", lambda job: go.wait(20) and b"")
    with make_server(max_documents=1) as server:
        impatient = SimpleNamespace(request=partial(server.request, timeout=0.5))
        with pytest.raises(TimeoutError):
            upload(impatient, "a.txt", b"42 hours")
        time.sleep(0.3)
        assert upload(server, "a.txt", b"42 hours")[0] == 503
        go.set()
        end = time.monotonic() + 10
        while upload(server, "a.txt", b"42 hours")[0] != 200:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_pages_of_chosen_origins_may_use_our_own_api(make_server):
    with make_server(allowed_origins=("https://example.org",)) as server:
        for origin, allowed in (("https://example.org", True), ("https://other.org", False)):
            _, headers, _ = server.request("GET", "/v1/models", headers={"origin": origin})
            assert ("access-control-allow-origin" in headers) == allowed


def test_keys_are_read_from_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# of the team\n one \n\ntwo\n")
    assert read_keys(file) == {"one", "two"}
    file.write_text("# none\n")
    with pytest.raises(ConfigError, match="contains no key"):
        read_keys(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_keys(tmp_path / "nothing")
    file.write_text("\ufeffone\n", encoding="utf-8")  # as editors of Windows write it
    assert read_keys(file) == {"one"}
    file.write_text("schlüssel\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="a header cannot have; expected ASCII"):
        read_keys(file)
    file.write_bytes(b"o\0ne\n")
    with pytest.raises(ConfigError, match="a header cannot have; expected ASCII"):
        read_keys(file)


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        (ServerSettings, "requests_per_minute", -1, "--rate is -1; expected at least 0"),
        (ServerSettings, "max_characters", 0, "--max-characters is 0"),
        (ServerSettings, "answer_seconds", float("nan"), "--seconds is nan"),
        (
            ServerSettings,
            "answer_seconds",
            1e12,
            "--seconds is .*; expected .* at most 1,000,000,000",
        ),
        (ServerSettings, "requests_per_minute", 10**12, "--rate is 1000.* at most 1,000,000,000"),
        (ServerSettings, "drain_seconds", -1, "--drain is -1"),
        (ServerSettings, "allowed_origins", ("example.org",), "--cors is 'example.org'; expected"),
        (ServerSettings, "allowed_origins", ("https://a.org/b",), "--cors is"),
        (QueueSettings, "queue_tokens", 0, "--queue-tokens is 0; expected at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(kind, name, value, message):
    with pytest.raises(ConfigError, match=message):
        kind(**{name: value})
