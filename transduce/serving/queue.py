"""The queue in front of an engine: sentences of all requests share batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transduce.config import SearchConfig
from transduce.errors import TransduceError
from transduce.search.hypothesis import Hypothesis

if TYPE_CHECKING:  # importing torch takes seconds, and CTranslate2 does not need it
    from transduce.engines.torch import Engine


class Busy(TransduceError):
    """A request that the server has no room for now."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class Cancelled(TransduceError):
    """A request whose client has gone."""


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """How much waits and how much is translated together."""

    batch_tokens: int = 1024  # source tokens in a batch
    queue_tokens: int = 65_536  # source tokens that may wait
    workers: int = 1  # batches that are searched at the same time


class Caller:
    """One request of a client: when its answer is no longer needed."""

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline  # of time.monotonic()
        self.cancelled = threading.Event()


_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


@contextmanager
def calling(caller: Caller) -> Iterator[None]:
    """Make all searches of this thread belong to a request."""
    token = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(token)


@dataclass(eq=False)
class _Call:
    """One call of `search`: the sentences that wait, and the results so far."""

    key: tuple[Any, ...]  # only calls with the same key share a batch
    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]]
    caller: Caller
    waiting: deque[int] = field(default_factory=deque)  # numbers of sources
    found: dict[int, list[Hypothesis]] = field(default_factory=dict)
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


_Item = tuple[_Call, int]


class BatchingEngine:
    """An engine that merges the searches of many threads into batches of another engine.

    Calls take turns: each batch takes one sentence of every call, then a second one, and so on, so
    that a long document does not delay short requests.
    """

    def __init__(self, engine: Engine, settings: QueueSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.waiting_tokens = 0
        self._calls: deque[_Call] = deque()  # with waiting sentences; the first is next
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"translate-{number}", daemon=True)
            for number in range(settings.workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether all workers still run."""
        return not self._closed and all(thread.is_alive() for thread in self._threads)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        *,
        prefixes: Sequence[Sequence[int]] = (),
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each source, best first."""
        caller = _CALLER.get() or Caller()
        call = _Call((config, token_scores, bool(prefixes)), sources, prefixes, caller)
        call.waiting.extend(range(len(sources)))
        self._enter(call)
        while not call.done.wait(self._patience(caller)):
            if caller.cancelled.is_set():
                self._leave(call, Cancelled("the client has gone"))
            elif caller.deadline is not None and time.monotonic() > caller.deadline:
                self._leave(call, Busy("the translation took too long; send less text", 1))
        if call.error is not None:
            raise call.error
        return [call.found[number] for number in range(len(sources))]

    def close(self) -> None:
        """Stop the workers after the batches that they are searching."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    @staticmethod
    def _patience(caller: Caller) -> float:
        """Return for how many seconds a caller waits until it looks at the clock."""
        if caller.deadline is None:
            return 0.1
        return min(0.1, max(0.0, caller.deadline - time.monotonic()) + 0.001)

    def _enter(self, call: _Call) -> None:
        tokens = sum(map(len, call.sources))
        with self._changed:
            if self._closed:
                raise Busy("the server is stopping", 5)
            if self.waiting_tokens and self.waiting_tokens + tokens > self.settings.queue_tokens:
                raise Busy("the server has too much to translate; try again later", 2)
            self.waiting_tokens += tokens
            self._calls.append(call)
            self._changed.notify()

    def _leave(self, call: _Call, error: BaseException) -> None:
        """Remove a call whose result is not needed any more."""
        with self._changed:
            if call.done.is_set():
                return
            self.waiting_tokens -= sum(len(call.sources[number]) for number in call.waiting)
            call.waiting.clear()
            if call in self._calls:
                self._calls.remove(call)
            call.error = error
            call.done.set()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._calls and not self._closed:
                    self._changed.wait()
                if self._closed:
                    for call in self._calls:
                        call.error = Busy("the server is stopping", 5)
                        call.done.set()
                    return
                batch = self._next_batch()
            self._run(batch)

    def _next_batch(self) -> list[_Item]:
        """Take the sentences of the next batch: one of each call in turn."""
        key = self._calls[0].key
        batch: list[_Item] = []
        tokens = 0
        turn = deque(call for call in self._calls if call.key == key)
        while turn:
            call = turn.popleft()
            number = call.waiting[0]
            length = len(call.sources[number])
            if batch and tokens + length > self.settings.batch_tokens:
                break
            call.waiting.popleft()
            batch.append((call, number))
            tokens += length
            if call.waiting:
                turn.append(call)

        # The calls of this batch that still wait go behind all others.
        self.waiting_tokens -= tokens
        taken = {id(call) for call, _ in batch}
        others = [call for call in self._calls if id(call) not in taken]
        again = [call for call in self._calls if id(call) in taken and call.waiting]
        self._calls = deque([*others, *again])
        return batch

    def _run(self, batch: list[_Item]) -> None:
        (config, token_scores, has_prefixes) = batch[0][0].key
        try:
            found = self.engine.search(
                [call.sources[number] for call, number in batch],
                config,
                prefixes=[call.prefixes[number] for call, number in batch] if has_prefixes else (),
                token_scores=token_scores,
            )
        except BaseException as error:
            for call in {id(call): call for call, _ in batch}.values():
                self._leave(call, error)
            return
        for (call, number), hypotheses in zip(batch, found, strict=True):
            call.found[number] = hypotheses
            if len(call.found) == len(call.sources):
                call.done.set()
