"""Several processes for HTTP: clients notice nothing, and what is shared is shared by all."""

import contextlib
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

from tests.serving.apis.test_files import download, upload
from tests.serving.running import running_processes
from tests.serving.test_server import ask, process, stop_under_load
from transduce.errors import ConfigError, TransduceError
from transduce.serving.models import load_models
from transduce.serving.processes import handle, supervisor
from transduce.serving.processes.supervisor import HttpProcesses, choose_count
from transduce.serving.queue.batching import BatchingEngine
from transduce.serving.queue.turns import QueueSettings
from transduce.serving.server import bind
from transduce.serving.settings import ServerSettings

TEXT = "Sunday, September 16, 1984. 42 hours and 25 minutes"
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def make_server(bundle):
    """Serve the model with two processes and other settings until the end of the block."""

    def make(queue=None, **settings):
        models = load_models([bundle.path], engine="torch", queue=queue, say=lambda message: None)
        return running_processes(models, **settings)

    return make


@pytest.fixture(scope="module")
def divided(make_server):
    with make_server() as server:
        yield server


def wait_until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def translate(**options):
    return "POST", "/v1/translate", json.dumps({"text": TEXT, **options}), JSON


@pytest.mark.parametrize(
    "request_",
    [
        translate(),
        translate(n_best=3, alignments=True, confidences=True),
        translate(glossary={"hours": "Stündchen"}),
        translate(stream=True),
        translate(model="missing"),
        translate(text=["42 hours", "", "12 kilometers"]),
        ("POST", "/v1/translate", "{", JSON),
        ("POST", "/v1/translate", json.dumps({"text": "a" * 100_001}), JSON),
        ("POST", "/v1/attention", json.dumps({"text": "42 hours", "without": ["cross.1.1"]}), JSON),
        ("POST", "/v1/walkthrough", json.dumps({"text": "42 hours"}), JSON),
        ("GET", "/v1/models", None, {}),
        ("POST", "/translate", "q=42+hours&source=en&target=de&alternatives=2", FORM),
        ("POST", "/translate", "q=42+hours&source=en&target=fr", FORM),
        ("POST", "/detect", "q=this+is+the+day", FORM),
        ("GET", "/languages", None, {}),
        ("GET", "/frontend/settings", None, {}),
        ("GET", "/download_file/missing", None, {}),
        ("POST", "/v2/translate", json.dumps({"text": [TEXT], "target_lang": "DE"}), JSON),
        ("GET", "/v2/languages?type=target", None, {}),
        ("GET", "/health", None, {}),
        ("GET", "/ready", None, {}),
        ("GET", "/openapi.json", None, {}),
        ("GET", "/", None, {}),
        ("GET", "/missing", None, {}),
    ],
    ids=lambda request: f"{request[1]} {request[2] or ''}"[:60],
)
def test_answers_are_those_of_a_single_process(server, divided, request_):
    status, headers, content = server.request(*request_)
    assert divided.request(*request_)[::2] == (status, content)
    assert divided.request(*request_)[1].keys() == headers.keys()  # of the other process


def note_gifts(server):
    """The numbers of the processes that get the connections, in a list that grows."""
    given = []
    for number, one in enumerate(server.processes._processes):

        def give(connection, number=number, give=one.give):
            taken = give(connection)
            given.extend([number] * taken)
            return taken

        one.give = give
    return given


def connect(server):
    """A connection that is kept open after its first answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/ready")
    assert connection.getresponse().read()
    return connection


def test_a_connection_goes_to_the_process_with_the_fewest(make_server):
    with make_server() as server, contextlib.ExitStack() as stack:
        given = note_gifts(server)
        kept = [stack.enter_context(contextlib.closing(connect(server))) for _ in range(6)]
        wait_until(lambda: sorted(given) == [0, 0, 0, 1, 1, 1])
        for number in [place for place, process in enumerate(given) if process == 1]:
            kept[number].close()
        wait_until(lambda: server.processes._processes[1].count_open() == 0)
        given.clear()
        for _ in range(3):
            stack.enter_context(contextlib.closing(connect(server)))
        wait_until(lambda: given == [1, 1, 1])


def test_connections_that_close_together_are_all_counted(make_server):
    """There is not room for a message about each of them."""
    with make_server(count=1) as server:
        (process,) = server.processes._processes
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(500)]
        wait_until(lambda: process._open == 500)
        for client in clients:
            client.close()
        time.sleep(1)
        wait_until(lambda: process.count_open() == 0)


def test_a_burst_of_connections_waits_for_processes_that_are_behind(make_server):
    """A socket between two processes holds some 300 of them."""
    with make_server() as server, contextlib.ExitStack() as stack:
        for one in server.processes._processes:
            one.process.send_signal(signal.SIGSTOP)
        clients = []
        for _ in range(800):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            clients.append(stack.enter_context(client))
            client.sendall(b"GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        for one in server.processes._processes:
            one.process.send_signal(signal.SIGCONT)
        assert {client.recv(65536)[:12] for client in clients} == {b"HTTP/1.1 200"}


def test_connections_wait_while_all_processes_are_replaced(make_server, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", 0.1)
    with make_server(say=lambda message: None) as server:
        killed = [*server.processes._processes]
        for one in killed:
            one.process.kill()
        wait_until(lambda: not {*killed} & {*server.processes._processes})
        assert server.get("/ready")[0] == 200  # although none of them is ready yet


def test_a_translated_file_is_found_by_every_process(divided, translator):
    status, answer = upload(divided, "a.txt", b"42 hours")
    assert status == 200
    expected = translator.translate("42 hours").text.encode()
    found = [download(divided, answer)[::2] for _ in range(4)]
    assert found == [(200, expected)] * 4


def test_a_rate_is_that_of_all_processes_together(make_server):
    with make_server(requests_per_minute=3) as server:
        requests = [server.request(*translate()) for _ in range(6)]
    assert [status for status, _, _ in requests] == [200, 200, 200, 429, 429, 429]
    assert all(int(headers["retry-after"]) > 0 for _, headers, _ in requests[3:])


def test_metrics_are_those_of_all_processes_together(make_server):
    with make_server() as server:
        for _ in range(5):
            assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200

        def usage():
            return server.get("/v2/usage")[1]["character_count"]

        wait_until(lambda: usage() == 40)  # counted when the answer was sent
        assert usage() == 40  # says the other process
        for _ in range(2):
            lines = server.request("GET", "/metrics")[2].decode().splitlines()
            label = '{method="POST",path="/v1/translate",status="200"}'
            assert f"transduce_requests_total{label} 5.0" in lines
            assert "transduce_characters_total 40.0" in lines
            assert 'transduce_queue_tokens{model="demo"} 0.0' in lines


def open_requests(server):
    """The number of requests without an answer, with the one that asks for it."""
    lines = server.request("GET", "/metrics")[2].decode().splitlines()
    (line,) = [line for line in lines if line.startswith("transduce_requests_open ")]
    return float(line.split()[1])


@pytest.fixture
def held(make_server):
    """A server whose search waits until it is told to go."""
    with make_server(queue=QueueSettings(queue_tokens=40), answer_seconds=2.0) as server:
        queue = server.processes._models.default.queue
        server.queue = queue
        server.go = threading.Event()
        search = queue.engine.search

        def held_search(*arguments, **options):
            assert server.go.wait(20)
            return search(*arguments, **options)

        queue.engine.search = held_search
        yield server
        server.go.set()


def test_the_queue_and_the_deadline_are_those_of_the_process_that_searches(held):
    statuses = []

    def client():
        text = "42 hours and 25 minutes"
        status, headers, _ = held.request("POST", "/v1/translate", json.dumps({"text": text}), JSON)
        statuses.append((status, "retry-after" in headers))

    threads = [threading.Thread(target=client) for _ in range(16)]
    for thread in threads:
        thread.start()
    # The first ones are searched or wait, the others are refused at once.
    wait_until(lambda: len(statuses) >= 4)
    assert set(statuses) == {(503, True)}
    assert 0 < held.queue.waiting_tokens <= 40
    assert open_requests(held) > 1
    assert f"{held.queue.waiting_tokens}.0" in held.request("GET", "/metrics")[2].decode()

    # Those that wait are given up after two seconds, and leave the queue.
    for thread in threads:
        thread.join(10)
    assert set(statuses) == {(503, True)}
    wait_until(lambda: held.queue.waiting_tokens == 0)
    held.go.set()
    assert held.post("/v1/translate", {"text": "42 hours"})[0] == 200


def test_a_client_that_has_gone_leaves_the_queue(held):
    first, second = (http.client.HTTPConnection("127.0.0.1", held.port) for _ in range(2))
    with contextlib.closing(first):
        first.request(*translate())
        wait_until(
            lambda: held.queue._turns._searched
        )  # the first one is searched, the second waits
        with contextlib.closing(second):
            second.request(*translate())
            wait_until(lambda: held.queue.waiting_tokens)
        wait_until(lambda: not held.queue.waiting_tokens)


def test_an_error_of_the_engine_is_answered_and_logged(make_server, capfd):
    with make_server() as server:
        queue = server.processes._models.default.queue
        search = queue.engine.search
        queue.engine.search = lambda *_, **options: 1 / 0
        status, answer = server.post("/v1/translate", {"text": "42 hours"})
        assert (status, answer) == (500, {"error": "the server failed; its log has the reason"})
        queue.engine.search = search
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_health_turns_bad_when_the_engine_is_dead(make_server):
    with make_server() as server:
        server.processes._models.default.queue.close()
        assert server.get("/health") == (503, {"status": "dead"})
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 503


def test_a_process_that_was_killed_is_replaced(make_server, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", 0.1)
    said = []
    with make_server(say=said.append) as server:
        assert [server.get("/health")[0] for _ in range(4)] == [200] * 4
        first, other = server.processes._processes
        first.process.kill()
        wait_until(lambda: said)
        assert said == ["a process for HTTP ended with status -9; another one is started"]
        assert [server.get("/health")[0] for _ in range(4)] == [200] * 4  # by the other one
        wait_until(lambda: server.processes._processes[0] is not first)
        wait_until(server.processes._processes[0].is_ready.is_set)
        other.give = lambda connection: False
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200
        wait_until(lambda: open_requests(server) == 1)


def test_a_stop_loses_no_accepted_request(bundle):
    answers, status, seconds = stop_under_load(bundle, options=("--processes", "2"))
    assert status == 0
    assert answers
    assert set(answers) == {200}
    assert seconds < 30


def children_of(pid):
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], stdout=subprocess.PIPE)
    return [int(line) for line in found.stdout.split()]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for child processes")


@on_linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_and_no_folder_is_left(bundle, number, tmp_path):
    options = {"start_new_session": True, "env": {"TMPDIR": str(tmp_path)}}
    with process(bundle, "--processes", "2", **options) as (server, port):
        children = children_of(server.pid)
        assert len(list(tmp_path.iterdir())) == 1
        assert len(children) == 2
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("GET", "/ready")
            assert connection.getresponse().read() == b'{"status":"ready"}'
        os.killpg(server.pid, number)  # as Ctrl-C does
        assert server.wait(20) == (0 if number == signal.SIGINT else -number)
        wait_until(lambda: not any(map(is_running, children)))
        assert list(tmp_path.iterdir()) == []


@on_linux
def test_signals_to_the_processes_for_http_change_nothing(bundle):
    """Some supervisors send them to every process of a service."""
    with process(bundle, "--processes", "2", "--drain", "1") as (server, port):
        for number in (signal.SIGINT, signal.SIGTERM):
            for child in [server.pid, *children_of(server.pid)][number == signal.SIGINT :]:
                os.kill(child, number)
        answers = []
        ask(port, answers, threading.Event(), "42 hours")  # until connections are refused
        assert server.wait(20) == 0
    assert len(answers) > 1
    assert set(answers) == {200}


@on_linux
def test_a_second_interrupt_does_not_wait(bundle):
    with process(bundle, "--processes", "2", "--drain", "60") as (server, _):
        server.send_signal(signal.SIGINT)
        time.sleep(0.5)
        server.send_signal(signal.SIGINT)
        server.wait(10)


def test_a_stop_during_the_start_leaves_nothing(bundle, tmp_path):
    command = [sys.executable, "-m", "transduce", "serve", str(bundle.path), "--port", "0"]
    for seconds in (0.8, 1.6):
        started = subprocess.Popen(
            [*command, "--engine", "torch", "--processes", "2"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        time.sleep(seconds)
        started.send_signal(signal.SIGTERM)
        _, error = started.communicate(timeout=20)
        assert "Traceback" not in error
        wait_until(lambda: not [*tmp_path.glob("transduce-metrics-*")])


def test_no_process_is_started_after_a_stop(bundle, monkeypatch):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    listener = bind("127.0.0.1", 0)
    processes = HttpProcesses(models, ServerSettings(), listener, count=3)
    start_process = processes._start_process

    def start_and_stop():
        started = start_process()
        processes.hurry()  # as the handler of a signal does
        return started

    monkeypatch.setattr(processes, "_start_process", start_and_stop)
    with listener:
        processes.start()
        processes.kill()
    models.close()
    assert [process.process.returncode for process in processes._processes] == [-signal.SIGKILL]


def test_modules_in_the_working_directory_are_not_imported(bundle, tmp_path, monkeypatch):
    (tmp_path / "uvicorn.py").write_text("raise SystemExit('foreign code')")
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    monkeypatch.chdir(tmp_path)
    with running_processes(models) as server:
        assert server.get("/ready")[0] == 200


def test_long_lines_of_the_log_stay_whole(bundle):
    with process(bundle, "--processes", "2", "--log-text") as (server, port):

        def client():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            with contextlib.closing(connection):
                for _ in range(10):
                    connection.request("POST", "/v1/translate", body, JSON)
                    assert connection.getresponse().read()

        body = json.dumps({"text": "-" * 60_000})
        lines = []
        reading = threading.Thread(target=lambda: lines.extend(server.stdout))
        reading.start()
        threads = [threading.Thread(target=client) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        server.send_signal(signal.SIGTERM)
        reading.join(20)
    assert [len(json.loads(line)["text"][0]) for line in lines] == [60_000] * 60


def test_a_process_that_cannot_be_replaced_at_once_is_replaced_later(make_server, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", 0.1)
    said = []
    with make_server(say=said.append) as server:
        first = server.processes._processes[0]
        popen = subprocess.Popen

        def fail(*arguments, **options):
            monkeypatch.setattr(handle.subprocess, "Popen", popen)
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(handle.subprocess, "Popen", fail)
        first.process.kill()
        wait_until(lambda: server.processes._processes[0] is not first)
    assert said[1] == "no other process for HTTP could be started (Too many open files)"


def test_a_process_that_dies_while_others_start_is_reported(bundle):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    failing = HttpProcesses(models, ServerSettings(), bind("127.0.0.1", 0), 2)
    start = failing._start_process
    made = []

    def start_process():
        made.append(start())
        if len(made) == 2:
            made[1].is_ready = threading.Event()  # the second one is never ready
        return made[-1]

    failing._start_process = start_process
    errors = []

    def run():
        try:
            failing.start()
        except TransduceError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: made and made[0].is_ready.is_set())
    made[0].process.kill()
    thread.join(10)
    assert errors == ["a process for HTTP did not start; the reason is above"]
    failing.kill()
    failing._listener.close()
    models.close()


def test_an_answer_that_is_late_does_not_hold_up_others(bundle, monkeypatch):
    go = threading.Event()
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running_processes(models, 1) as server:
        monkeypatch.setattr(BatchingEngine, "is_alive", property(lambda queue: go.wait(5)))
        thread = threading.Thread(target=server.get, args=("/health",))
        thread.start()
        start = time.monotonic()
        for _ in range(5):
            assert server.get("/ready")[0] == 200
        assert time.monotonic() - start < 3
        go.set()
        thread.join(20)


def test_places_for_documents_are_those_of_all_processes(make_server):
    with make_server(max_documents=2) as server:
        queue = server.processes._models.default.queue
        go = threading.Event()
        search = queue.engine.search
        queue.engine.search = lambda *args, **options: go.wait(20) and search(*args, **options)
        statuses = []
        content = b"42 hours and 25 minutes"

        def client():
            with contextlib.suppress(OSError):
                statuses.append(upload(server, "a.txt", content)[0])

        threads = [threading.Thread(target=client) for _ in range(5)]
        for thread in threads:
            thread.start()
        wait_until(lambda: statuses == [503] * 3)

        # The places of a process that ends are free again.
        killed = [*server.processes._processes]
        for one in killed:
            one.process.kill()
        for thread in threads:
            thread.join(10)
        wait_until(lambda: not {*killed} & {*server.processes._processes})
        go.set()
        assert upload(server, "a.txt", content)[0] == 200
        assert upload(server, "a.txt", content)[0] == 200


def test_a_load_balancer_notices_a_stop_before_connections_are_refused(make_server):
    with make_server(drain_seconds=1.0) as server:
        thread = threading.Thread(target=server.processes.stop)
        thread.start()
        wait_until(lambda: server.get("/ready") == (503, {"status": "stopping"}))
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200
        thread.join(20)
        with pytest.raises(ConnectionRefusedError):
            server.get("/ready")
        server.processes.stop = lambda: None


def test_a_process_that_cannot_start_is_reported(bundle, monkeypatch):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    listener = bind("127.0.0.1", 0)
    failing = HttpProcesses(models, ServerSettings(), listener, 2)
    with pytest.raises(TransduceError, match="did not start"):
        failing.start()
    failing.kill()
    listener.close()
    models.close()


def test_a_gpu_gets_a_process_for_every_two_cores(bundle, monkeypatch):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    queue = models.default.queue
    for cores, is_streaming, count in [(16, False, 1), (16, True, 4), (6, True, 3), (1, True, 1)]:
        monkeypatch.setattr(supervisor, "available_cores", lambda cores=cores: cores)
        queue.is_streaming = is_streaming
        assert choose_count(None, models) == count
        assert choose_count(7, models) == 7
    for wrong in (0, 65):
        message = f"--processes is {wrong}; expected a number from 1 to 64"
        with pytest.raises(ConfigError, match=re.escape(message)):
            choose_count(wrong, models)
    models.close()


def test_processes_share_what_is_limited():
    settings = ServerSettings(max_connections=10, max_requests=9)
    own = settings.divided(4)
    assert (own.max_connections, own.max_requests) == (3, 3)
    assert settings.divided(1) == settings
