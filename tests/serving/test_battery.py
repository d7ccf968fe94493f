"""Malformed requests, slow clients, overload and stops: samples here, full counts in the battery."""

import contextlib
import json
import random
import socket
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serving.running import running, running_processes
from tests.serving.test_server import stop_under_load
from transduce.serving.models import load_models
from transduce.serving.queue.turns import QueueSettings

BODY = json.dumps({"text": "42 hours", "n_best": 2}).encode()
GOOD = (
    b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(BODY), BODY)
)
FORM = b"q=42+hours&source=en&target=de"
SEEDS = [
    GOOD,
    b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(FORM), FORM),
    b"GET /languages HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    b"POST /v2/translate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close"
    b'\r\ncontent-type: application/json\r\n\r\n5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n',
]


def malformed(chance):
    """A request with some bytes changed, left out, repeated or cut off."""
    request = bytearray(chance.choice(SEEDS))
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(request))
        match chance.randrange(5):
            case 0:
                request[place] = chance.randrange(256)
            case 1:
                del request[place : place + chance.randint(1, 20)]
            case 2:
                request[place:place] = bytes(chance.choices(range(256), k=chance.randint(1, 40)))
            case 3:
                request[place:place] = request[place : place + 30] * chance.randint(1, 50)
            case 4:
                del request[place:]
        if not request:
            request = bytearray(b"\r\n")
    return bytes(request)


def send_raw(port, request, seconds=10):
    """The statuses of the answers to some bytes; the connection must end in time."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        content = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                content += part
        return [int(line[:3]) for line in content.split(b"HTTP/1.1 ")[1:]]


def check_malformed(server, count):
    chance = random.Random(count)
    statuses = set()
    with ThreadPoolExecutor(8) as threads:
        requests = [malformed(chance) for _ in range(count)]
        for found in threads.map(lambda request: send_raw(server.port, request), requests):
            statuses.update(found)
    assert not [status for status in statuses if status >= 500]
    assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200


def test_malformed_bytes_never_break_the_server(server):
    check_malformed(server, 100)


def test_malformed_bytes_never_break_a_server_of_several_processes(bundle):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    said = []
    with running_processes(models, say=said.append) as server:
        check_malformed(server, 100)
    assert said == []  # no process had to be replaced


@pytest.mark.battery
def test_ten_thousand_malformed_requests_never_break_the_server(server):
    check_malformed(server, 10_000)


def latencies(server, count):
    """The seconds of short requests, one after the other."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200
        found.append(time.perf_counter() - start)
    return sorted(found)


@pytest.mark.battery
def test_slow_clients_are_cut_and_do_not_slow_others_down(bundle):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models, max_connections=1_000) as server:
        before = latencies(server, 200)
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(900)]
        for number, connection in enumerate(slow):
            head = GOOD.partition(b"\r\n\r\n")[0] + b"\r\n\r\n{" if number % 2 else b"GET / HT"
            connection.sendall(head)
        start = time.monotonic()
        during = latencies(server, 200)
        cut = {"headers": 0.0, "body": 0.0}
        for kind, first in (("headers", 0), ("body", 1)):
            for connection in slow[first::2]:
                connection.settimeout(60)
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(65536):
                        pass
                connection.close()
            cut[kind] = time.monotonic() - start
    p99 = before[197], during[197]
    print(f"p99 {p99[0] * 1e3:.1f} ms before, {p99[1] * 1e3:.1f} ms during; cut after", end=" ")
    print(f"{cut['headers']:.1f} s (headers), {cut['body']:.1f} s (bodies)")
    assert cut["headers"] < during[-1] * 200 + 12  # not earlier than the requests were measured
    assert cut["body"] < 40
    assert p99[1] < 2 * p99[0] + 0.05


def overload(bundle, seconds):
    """Send four times as many requests as the server can answer, for some time."""
    models = load_models(
        [bundle.path],
        engine="torch",
        queue=QueueSettings(queue_tokens=400),
        say=lambda message: None,
    )
    statuses, retries, most_waiting = [], [], []
    with running(models, max_requests=64) as server:
        queue = models.default.queue
        idle = statistics.median(latencies(server, 10))
        end = time.monotonic() + seconds
        headers = {"content-type": "application/json"}

        def client():
            chance = random.Random(threading.get_ident())
            while time.monotonic() < end:
                # Equal sentences would be translated once.
                text = " ".join(f"{chance.randrange(10_000)} hours." for _ in range(8))
                body = json.dumps({"text": text})
                status, names, _ = server.request("POST", "/v1/translate", body, headers)
                statuses.append(status)
                retries.append(status == 200 or "retry-after" in names)
                most_waiting.append(queue.waiting_tokens)

        threads = [threading.Thread(target=client) for _ in range(48)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(min(seconds, 5))
        after = statistics.median(latencies(server, 10))
    print(f"{len(statuses)} requests, {statuses.count(200)} answered, others refused", end="; ")
    print(f"at most {max(most_waiting)} tokens waited; {idle * 1e3:.0f} and {after * 1e3:.0f} ms")
    assert set(statuses) == {200, 503}
    assert all(retries)
    assert max(most_waiting) <= 400
    assert after < 5 * idle + 0.05


def test_overload_is_refused_with_a_time_to_retry_and_passes(bundle):
    overload(bundle, 1.5)


@pytest.mark.battery
def test_two_minutes_of_overload_pass(bundle):
    overload(bundle, 120)


@pytest.mark.battery
@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one", "several"])
def test_fifty_stops_under_load_lose_no_accepted_request(bundle, options):
    total = 0
    longest = 0.0
    chance = random.Random(1)
    for _ in range(50):
        after = chance.uniform(0.05, 1.0)
        answers, status, seconds = stop_under_load(bundle, after=after, options=options)
        assert status == 0
        assert set(answers) <= {200}
        total += len(answers)
        longest = max(longest, seconds)
    print(f"50 stops, {total} requests answered, the longest stop took {longest:.1f} s")
    assert longest < 30
