"""What is known about the requests: metrics for Prometheus, and an access log without texts."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.models import Models
from transduce.storage.disk import describe_failure

METRICS_TYPE = CONTENT_TYPE_LATEST
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the variable that prometheus_client reads
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# Of a path that does not exist: clients must not be able to make up labels.
_OTHER = "other"
_METHODS = {"GET", "POST", "HEAD", "OPTIONS"}

Write = Callable[[str], object]


class Metrics:
    """The numbers under /metrics. No label is an address, a key or a text.

    Several processes of one server write their numbers to files in a folder, and each of them can
    show the sums. The name of that folder is in the environment when this module is imported.
    """

    def __init__(self, models: Models) -> None:
        disable_created_metrics()  # times that several processes do not have
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "transduce_requests",
            "Requests that were answered.",
            ["path", "method", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "transduce_request_seconds",
            "Seconds until a request was answered.",
            ["path"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._characters = Counter(
            "transduce_characters",
            "Characters of the texts that were answered.",
            registry=self._registry,
        )
        self._open = Gauge(
            "transduce_requests_open",
            "Requests without an answer yet.",
            multiprocess_mode="livesum",
            registry=self._registry,
        )
        self._shown = self._registry
        if METRICS_FOLDER in os.environ:
            self._shown = CollectorRegistry()
            MultiProcessCollector(self._shown)
        self._shown.register(_QueueTokens(models))

    @property
    def characters(self) -> int:
        """The number of characters that were answered since the start."""
        return int(self._shown.get_sample_value("transduce_characters_total") or 0)

    def begin(self) -> None:
        """Count a request that has arrived."""
        self._open.inc()

    def end(self, path: str, method: str, status: int, seconds: float, characters: int) -> None:
        """Count a request that has been answered."""
        method = method if method in _METHODS else _OTHER
        self._open.dec()
        self._requests.labels(path, method, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        self._characters.inc(characters)

    def text(self) -> bytes:
        """Return all numbers in the text format of Prometheus."""
        return generate_latest(self._shown)


class _QueueTokens(Collector):
    """The number of tokens that wait for each model, read when the metrics are shown."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge."""
        gauge = GaugeMetricFamily(
            "transduce_queue_tokens", "Source tokens that wait for a model.", labels=["model"]
        )
        for model in self._models.served:
            gauge.add_metric([model.name], model.queue.waiting_tokens)
        yield gauge


class Observation:
    """Middleware that counts each request and writes a line about it."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, write: Write | None, *, log_text: bool = False
    ) -> None:
        self.app = app
        self.metrics = metrics
        self.write = write
        self.log_text = log_text
        self.is_writable = True  # the log, as far as known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, and note what it answered."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 0
        is_complete = False

        async def noting_send(message: Message) -> None:
            nonlocal status, is_complete
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)
            if message["type"] == "http.response.body":
                is_complete = not message.get("more_body", False)

        self.metrics.begin()
        start = time.perf_counter()
        try:
            await self.app(scope, receive, noting_send)
        except Exception:
            status = status or 500  # answered outside of this
            raise
        finally:
            seconds = time.perf_counter() - start
            texts: list[str] = scope.get("texts", [])
            is_answered = is_complete and status < 400
            characters = sum(map(len, texts)) if is_answered else 0
            path = getattr(scope.get("route"), "path", _OTHER)
            self.metrics.end(path, scope["method"], status, seconds, characters)
            if self.write:
                self._write(self.write, self._line(scope, path, status, seconds, texts))

    def _write(self, write: Write, line: str) -> None:
        """Write a line. With a full disk or a closed pipe, requests are answered all the same."""
        try:
            write(line)
            self.is_writable = True
        except OSError as error:
            reason = describe_failure(error)
            message = f"transduce: the access log cannot be written ({reason}); lines are lost"
            if self.is_writable:
                with contextlib.suppress(OSError):  # it may be the same pipe
                    print(message, file=sys.stderr, flush=True)
            self.is_writable = False

    def _line(self, scope: Scope, path: str, status: int, seconds: float, texts: list[str]) -> str:
        """Return the line of the log. A query may hold texts and keys, so it is left out."""
        client = scope.get("client")
        line: dict[str, Any] = {
            "time": round(time.time(), 3),
            "client": client[0] if client else None,
            "method": scope["method"],
            "path": path,
            "status": status,
            "seconds": round(seconds, 4),
            "texts": len(texts),
            "characters": sum(map(len, texts)),
        }
        if self.log_text:
            line["text"] = texts
        return json.dumps(line)


def print_line(line: str) -> None:
    """Write a line of the access log to standard output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
