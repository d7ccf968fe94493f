"""The speed of a server: throughput with batches and without, and latency beside a document.

The server and its clients run in this process and talk over the loopback interface. One at a time
means that the server translates one sentence after the other, with all cores.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transduce.errors import InputError, TransduceError
from transduce.recipe import adjusted
from transduce.serving.models import load_models
from transduce.serving.queue import QueueSettings
from transduce.serving.server import bind, make_server
from transduce.serving.service import Service
from transduce.serving.settings import ServerSettings
from transduce.translation.benchmark import print_json, quantile

ONE_AT_A_TIME = QueueSettings(batch_tokens=1, share_tokens=1)
ENOUGH = 1_000_000.0  # seconds: a benchmark has no deadline


@dataclass(frozen=True)
class Figures:
    """What clients measured under one load; each request is one sentence."""

    server: str
    clients: int
    sentences_per_second: float
    # Of all cores together, with the clients: hardly depends on what else the machine does.
    sentences_per_cpu_second: float
    # Percentiles 50 and 99 of the time until an answer.
    milliseconds: tuple[float, float]


def benchmark(
    model: Path, sentences: Sequence[str], *, beam: int | None, clients: int, rounds: int
) -> Iterator[Figures]:
    """Yield the figures of each load."""
    if clients < 1 or rounds < 1:
        raise InputError(f"clients is {clients} and rounds is {rounds}; expected at least 1 each")
    loads = [1, clients] if clients > 1 else [1]
    many = [*sentences] * rounds
    with _serving(model, beam, ONE_AT_A_TIME, workers=1) as port:
        for count in loads:
            yield _measure("one at a time", port, many, count)
    with _serving(model, beam, QueueSettings(), workers=None) as port:
        for count in loads:
            yield _measure("batches", port, many, count)
        document = " ".join(many)
        with _translating(port, document):
            yield _measure("batches, beside a document", port, many, 1)


@contextmanager
def _serving(
    model: Path, beam: int | None, queue: QueueSettings, workers: int | None
) -> Iterator[int]:
    """Serve a model on a free port."""
    models = load_models(
        [model],
        device="cpu",
        search=partial(adjusted, beam_size=beam),
        queue=queue,
        workers=workers,
    )
    settings = ServerSettings(answer_seconds=ENOUGH, max_characters=100_000_000, max_body=10**9)
    listener = bind("127.0.0.1", 0)
    server = make_server(Service(models, settings))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    port: int = listener.getsockname()[1]
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join()


def _measure(name: str, port: int, sentences: Sequence[str], clients: int) -> Figures:
    """Let some clients send all sentences, each the next one when it has an answer."""
    _ask(port, sentences[0])  # warm up
    waiting = iter(sentences)
    turn = threading.Lock()
    seconds: list[float] = []
    errors: list[Exception] = []

    def client() -> None:
        try:
            while True:
                with turn:
                    sentence = next(waiting, None)
                if sentence is None:
                    return
                seconds.append(_ask(port, sentence))
        except (OSError, TransduceError) as error:
            errors.append(error)

    start = time.perf_counter()
    start_cpu = time.process_time()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = time.perf_counter() - start
    cpu_seconds = time.process_time() - start_cpu
    if errors:
        raise errors[0]
    p50, p99 = (quantile(seconds, share) * 1e3 for share in (0.5, 0.99))
    count = len(seconds)
    return Figures(name, clients, count / total, count / cpu_seconds, (p50, p99))


@contextmanager
def _translating(port: int, document: str) -> Iterator[None]:
    """Keep the server busy with a document that is sent again and again."""
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            _ask(port, document)

    thread = threading.Thread(target=client)
    thread.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _ask(port: int, text: str) -> float:
    """Send a text, and return the seconds until its translation is here."""
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"content-type": "application/json"}
    try:
        connection.request("POST", "/v1/translate", json.dumps({"text": text}), headers)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise InputError(f"the server answered {answer.status}: {content[:200]!r}")
    return time.perf_counter() - start


def print_figures(figures: Sequence[Figures], *, as_json: bool) -> None:
    """Print a table, or JSON."""
    if as_json:
        print_json(figures)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("server", "clients", "sentences/s", "per CPU second", "ms: p50", "p99")
    for row in figures:
        p50, p99 = row.milliseconds
        table.add_row(
            row.server,
            str(row.clients),
            f"{row.sentences_per_second:,.1f}",
            f"{row.sentences_per_cpu_second:,.1f}",
            f"{p50:,.0f}",
            f"{p99:,.0f}",
        )
    Console().print(table)
