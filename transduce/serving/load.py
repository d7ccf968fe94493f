"""Clients that send requests to a server at the same time, in processes of their own.

In the process of the server they would compete with it for Python's interpreter lock. Each client
keeps its connection and sends its next request when it has the answer to the last one. A process
of clients reads what to send as JSON from its first line of input, says when it is ready, waits for
a second line, and prints the seconds of each request as JSON.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from transduce.cores import available_cores
from transduce.errors import InputError

HEADERS = {"content-type": "application/json"}
PATIENCE = 600.0  # seconds until a client gives up on an answer


@dataclass(frozen=True)
class Load:
    """What one process of clients sends."""

    url: str
    bodies: list[str]  # JSON, one of each request
    clients: int
    first: int = 0  # how many of the requests are sent before the measurement, too


def send(
    url: str, bodies: Sequence[str], clients: int, *, first: int = 0
) -> tuple[float, list[float]]:
    """Send all bodies; return the seconds in all, and those of each request until its answer.

    Each client sends about `first` of them before the measurement, to warm the server up.
    """
    count = min(clients, len(bodies), max(1, available_cores() // 2))
    processes = []
    for number in range(count):
        own_clients = (clients + number) // count
        load = Load(url, [*bodies[number::count]], own_clients, first * own_clients)
        processes.append(_start_process(load))

    # All start at the same time, when all are ready.
    lines = [process.stdout.readline() for process in processes]
    start = time.perf_counter()
    outputs = []
    for process in processes:
        with suppress(BrokenPipeError):  # it has failed before
            process.stdin.write("go\n")
            process.stdin.flush()
    for process, line in zip(processes, lines, strict=True):
        rest, _ = process.communicate()
        outputs.append(rest or line)
    total = time.perf_counter() - start

    seconds: list[float] = []
    for output in outputs:
        answer = json.loads(output)
        if answer["error"]:
            raise InputError(answer["error"])
        seconds += answer["seconds"]
    return total, seconds


def _start_process(load: Load) -> Any:
    process = subprocess.Popen(
        [sys.executable, "-m", "transduce.serving.load"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    process.stdin.write(json.dumps(asdict(load)) + "\n")
    process.stdin.flush()
    return process


def ask(url: str, body: str) -> Any:
    """Send one request, and return the JSON of its answer."""
    with _Connection(url) as connection:
        content = connection.post(body)
    try:
        return json.loads(content)
    except ValueError:
        raise InputError(f"{url} answered {content[:200]!r}; expected JSON") from None


class _Connection:
    """A connection to a server that is kept for several requests."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:  # in the port, or for a bracket
            raise _no_address(url) from None
        if parts.scheme not in ("http", "https") or not host:
            raise _no_address(url)
        is_secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        self._connection = kind(host, port, timeout=PATIENCE)
        self._url = url
        self._path = parts.path or "/"

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def post(self, body: str) -> bytes:
        """Send a body, and return that of the answer."""
        try:
            self._connection.request("POST", self._path, body.encode(), HEADERS)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            raise InputError(f"{self._url} does not answer ({error})") from None
        if answer.status != 200:
            raise InputError(f"{self._url} answered {answer.status}: {content[:200]!r}")
        return content


def _no_address(url: str) -> InputError:
    return InputError(f"{url} is not an address; expected one such as http://localhost:5000")


def run_clients(load: Load) -> list[float]:
    """Let some clients send all requests, each the next one when it has an answer."""
    waiting = iter(load.bodies)
    turn = threading.Lock()
    seconds: list[float] = []
    errors: list[InputError] = []

    def client() -> None:
        try:
            with _Connection(load.url) as connection:
                for body in _shared(waiting, turn):
                    start = time.perf_counter()
                    connection.post(body)
                    seconds.append(time.perf_counter() - start)
        except InputError as error:
            errors.append(error)

    threads = [threading.Thread(target=client) for _ in range(load.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return seconds


def _shared(items: Iterator[str], turn: threading.Lock) -> Iterator[str]:
    """Yield items of an iterator that several threads share."""
    while True:
        with turn:
            item = next(items, None)
        if item is None:
            return
        yield item


def main() -> None:
    """Be a process of clients."""
    load = Load(**json.loads(sys.stdin.readline()))
    try:
        run_clients(replace(load, bodies=load.bodies[: load.first]))
        print("ready", flush=True)
        sys.stdin.readline()
        answer = {"seconds": run_clients(load), "error": ""}
    except InputError as error:
        answer = {"seconds": [], "error": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
