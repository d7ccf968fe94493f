"""The speed of a server: throughput with batches and without, and latency beside a document.

The search runs in this process and the clients in others; they talk over the loopback interface.
HTTP is spoken by this process, or by several others, as in `transduce serve`.
For comparison, the same sentences are translated without a server ("offline"): all at once, and as
many at a time as there are clients. One at a time means that the server translates one sentence
after the other, with all cores; on a GPU sentences always join a running batch. A peer is any other
server with the API of LibreTranslate.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from transduce.errors import InputError
from transduce.recipe import adjusted
from transduce.serving.load import ask, send
from transduce.serving.models import Models, load_models
from transduce.serving.processes.supervisor import HttpProcesses, choose_count
from transduce.serving.queue.turns import QueueSettings
from transduce.serving.server import bind, make_server
from transduce.serving.service import Service
from transduce.serving.settings import ServerSettings
from transduce.translation.benchmark import print_json, quantile
from transduce.translation.translator import Translator

ONE_AT_A_TIME = QueueSettings(batch_tokens=1, share_tokens=1)
ENOUGH = 1_000_000.0  # seconds: a benchmark has no deadline
MOST_REQUESTS = 200  # of each client
WARM_UP = 4  # requests of each client before those that are measured
Languages = tuple[str | None, str | None]  # source and target, if they are known


@dataclass(frozen=True)
class Figures:
    """What was measured under one load."""

    server: str
    clients: int
    texts: int  # sentences of each request
    sentences_per_second: float
    # Of all cores together, with the clients: hardly depends on what else the machine does. It is
    # not known of a peer, nor of other processes that speak HTTP.
    sentences_per_cpu_second: float | None
    # Percentiles 50 and 99 of the time until the answer to a request.
    milliseconds: tuple[float, float]
    # The throughput, divided by that without a server of all sentences at once.
    share_of_offline: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is served, and what the clients send."""

    model: Path
    sentences: Sequence[str]
    device: str | None = "cpu"
    beam: int | None = None
    clients: int = 32
    texts: int = 1  # sentences of each request
    rounds: int = 3
    processes: int | None = None  # that speak HTTP; as many as `transduce serve` takes
    peer: str | None = None  # the address of another server

    def __post_init__(self) -> None:
        """Refuse numbers that measure nothing."""
        for name in ("clients", "texts", "rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected at least 1")


def benchmark(setup: Setup) -> Iterator[Figures]:
    """Yield the figures of each load."""
    loads = [1, setup.clients] if setup.clients > 1 else [1]
    with _serving(setup, QueueSettings(), workers=None) as server:
        model = server.models.default
        languages = model.source_language, model.target_language
        peer = _find_peer(setup, server.models, languages)

        # Without a server.
        offline = _offline(model.direct, setup, len(setup.sentences))
        yield offline
        yield _compared(_offline(model.direct, setup, setup.clients), offline)

        # With batches, also beside a document.
        for count in loads:
            yield _compared(_measure("batches", server, setup, count), offline)
        with _translating(server.url, " ".join(setup.sentences)):
            row = _measure("batches, beside a document", server, setup, 1)
            yield _compared(row, offline)

    if peer:
        for count in loads:
            row = _measure(f"peer {setup.peer}", peer, setup, count, languages)
            yield _compared(row, offline)

    # A running batch has no form without batches.
    if model.queue.is_streaming:
        return
    with _serving(setup, ONE_AT_A_TIME, workers=1) as server:
        for count in loads:
            yield _compared(_measure("one at a time", server, setup, count), offline)


@dataclass(frozen=True)
class _Server:
    """A server that is measured."""

    url: str  # to which texts are sent
    models: Models
    is_here: bool  # in this process as a whole


@contextmanager
def _serving(setup: Setup, queue: QueueSettings, workers: int | None) -> Iterator[_Server]:
    """Serve a model on a free port."""
    models = load_models(
        [setup.model],
        device=setup.device,
        search=partial(adjusted, beam_size=setup.beam),
        queue=queue,
        workers=workers,
    )
    settings = ServerSettings(answer_seconds=ENOUGH, max_characters=100_000_000, max_body=10**9)
    listener = bind("127.0.0.1", 0)
    port: int = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1/translate"
    count = choose_count(setup.processes, models)
    if count > 1:
        processes = HttpProcesses(models, settings, listener, count)
        processes.start()
        try:
            yield _Server(url, models, is_here=False)
        finally:
            processes.stop()
        return
    server = make_server(Service(models, settings))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield _Server(url, models, is_here=True)
    finally:
        server.should_exit = True
        thread.join()


def _find_peer(setup: Setup, models: Models, languages: Languages) -> _Server | None:
    """Return the other server, or raise an InputError before minutes of measurements."""
    if not setup.peer:
        return None
    peer = _Server(f"{setup.peer.rstrip('/')}/translate", models, is_here=False)
    ask(peer.url, _body([setup.sentences[0]], languages))
    return peer


def _offline(translator: Translator, setup: Setup, size: int) -> Figures:
    """Translate all sentences without a server, this many at a time."""
    sentences = [*setup.sentences]
    size = min(size, len(sentences))
    batches = [sentences[start : start + size] for start in range(0, len(sentences), size)]
    for batch in [batches[0], batches[0], batches[-1], batches[-1]]:
        translator.translate(batch)  # warm up: a GPU records its work when it does it again

    seconds = []
    start = time.perf_counter()
    start_cpu = _cpu_seconds()
    for batch in batches * setup.rounds:
        begin = time.perf_counter()
        translator.translate(batch)
        seconds.append(time.perf_counter() - begin)
    total = time.perf_counter() - start
    cpu_seconds = _cpu_seconds() - start_cpu
    count = len(sentences) * setup.rounds
    return _figures("offline", 0, size, count, total, cpu_seconds, seconds)


def _measure(
    name: str, server: _Server, setup: Setup, clients: int, languages: Languages | None = None
) -> Figures:
    """Let some clients send all sentences; with languages, to the API of LibreTranslate."""
    many = [*setup.sentences] * setup.rounds
    many = many[: MOST_REQUESTS * clients * setup.texts]
    requests = [many[start : start + setup.texts] for start in range(0, len(many), setup.texts)]
    bodies = [_body(texts, languages) for texts in requests]
    start_cpu = _cpu_seconds()
    total, seconds = send(server.url, bodies, clients, first=WARM_UP)
    cpu_seconds = _cpu_seconds() - start_cpu

    # The processor time is that of all requests, with those before the measurement.
    warm_up = min(len(bodies), WARM_UP * clients)
    cpu_seconds *= len(bodies) / (len(bodies) + warm_up)
    own_seconds = cpu_seconds if server.is_here else None
    return _figures(name, clients, setup.texts, len(many), total, own_seconds, seconds)


def _body(texts: list[str], languages: Languages | None) -> str:
    """Return a request of our API, or with languages of that of LibreTranslate."""
    if languages is None:
        return json.dumps({"text": texts})
    source, target = languages
    return json.dumps({"q": texts, "source": source, "target": target, "format": "text"})


def _figures(
    name: str,
    clients: int,
    texts: int,
    count: int,
    total: float,
    cpu_seconds: float | None,
    seconds: Sequence[float],
) -> Figures:
    p50, p99 = (quantile(seconds, share) * 1e3 for share in (0.5, 0.99))
    per_cpu_second = count / cpu_seconds if cpu_seconds else None
    return Figures(name, clients, texts, count / total, per_cpu_second, (p50, p99))


def _compared(row: Figures, offline: Figures) -> Figures:
    """Return the figures with their share of what is possible offline."""
    share = row.sentences_per_second / offline.sentences_per_second
    return replace(row, share_of_offline=share)


def _cpu_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


@contextmanager
def _translating(url: str, document: str) -> Iterator[None]:
    """Keep the server busy with a document that is sent again and again."""
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            ask(url, json.dumps({"text": document}))

    thread = threading.Thread(target=client)
    thread.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        stop.set()
        thread.join()


def print_figures(figures: Sequence[Figures], *, as_json: bool) -> None:
    """Print a table, or JSON."""
    if as_json:
        print_json(figures)
        return
    from rich.console import Console
    from rich.table import Table

    names = "server", "clients", "texts", "sentences/s", "of offline", "per CPU second"
    table = Table(*names, "ms: p50", "p99")
    for row in figures:
        p50, p99 = row.milliseconds
        table.add_row(
            row.server,
            str(row.clients or ""),
            str(row.texts),
            f"{row.sentences_per_second:,.1f}",
            f"{row.share_of_offline:.0%}",
            f"{row.sentences_per_cpu_second:,.1f}" if row.sentences_per_cpu_second else "",
            f"{p50:,.0f}",
            f"{p99:,.0f}",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
