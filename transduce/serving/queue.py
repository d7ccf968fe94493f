"""The queue in front of an engine: sentences of all requests share batches.

Requests take turns, one sentence each, so that a long document does not delay short requests. On a
CPU a worker takes a batch of sentences at a time; while other requests are expected, a document
leaves one of several workers to them. On a GPU sentences join the running batch between two steps,
as soon as others have left it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.search.hypothesis import Hypothesis, Job
from transduce.serving.caller import Busy, Caller, Cancelled, current_caller

if TYPE_CHECKING:  # importing torch takes seconds, and CTranslate2 does not need it
    from transduce.engines.torch import Engine

QUIET = 5.0  # seconds without another request, after which none is expected
LONG_AGO = -QUIET  # before any time of a clock
MOST_DELAYED = 0.25  # seconds that a long sentence waits before short ones wait for it


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """How much waits, and how much is translated together."""

    batch_tokens: int = 1_024  # source tokens in a batch
    # Source tokens in a batch of a single request while others are expected: a request that
    # arrives in the meantime waits for this batch.
    share_tokens: int = 128
    queue_tokens: int = 65_536  # source tokens that may wait

    def __post_init__(self) -> None:
        """Refuse a queue that nothing can enter."""
        if self.queue_tokens < 1:
            raise ConfigError(f"--queue-tokens is {self.queue_tokens}; expected at least 1")


@dataclass(eq=False)
class _Call:
    """One call of `search`: the sentences that wait, and the results so far."""

    key: tuple[SearchConfig, bool]  # only calls with the same key share a batch
    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]]
    caller: Caller
    waiting: deque[int] = field(default_factory=deque)  # numbers of sources
    found: dict[int, list[Hypothesis]] = field(default_factory=dict)
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)
    since: float = field(default_factory=time.monotonic)

    def next_length(self) -> int:
        """Return the number of tokens of the next sentence."""
        return len(self.sources[self.waiting[0]])


_Item = tuple[_Call, int]  # a call and the number of one of its sources


class BatchingEngine:
    """An engine that merges the searches of many threads into batches of another engine."""

    def __init__(self, engine: Engine, settings: QueueSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.waiting_tokens = 0
        self._calls: deque[_Call] = deque()  # those with waiting sentences; the first is next
        self._changed = threading.Condition()
        self._closed = False
        self._departures = 0  # calls that have left without a result
        self._running: Counter[_Call] = Counter()  # in how many batches each call is searched
        self._last_caller: Caller | None = None
        self._last_at = LONG_AGO  # when the last request entered
        self._others_at = LONG_AGO  # when another one than the last request entered
        self._changed_at = 0.0  # when another request than the one before it entered
        can_stream = getattr(engine, "can_stream", None)
        self.is_streaming = bool(can_stream and can_stream())
        work = self._stream if self.is_streaming else self._search_batch
        self._threads: list[threading.Thread] = []
        self._workers: int = getattr(engine, "workers", 1)
        for number in range(self._workers):
            name = f"translate-{number}"
            thread = threading.Thread(target=self._work, args=(work,), name=name, daemon=True)
            self._threads.append(thread)
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
        """Return the n best hypotheses of each source, best first.

        Raises `Busy` if too much waits or the deadline of the request has passed, and `Cancelled`
        if its client has gone; its sentences then leave the queue.
        """
        if not sources:
            return []
        call = _Call((config, token_scores), sources, prefixes, current_caller())
        call.waiting.extend(range(len(sources)))
        self._enter(call)
        leave = partial(self._leave, call, Cancelled("the client has gone"))
        with call.caller.listening(leave):
            if not call.done.wait(call.caller.seconds_left()):
                self._leave(call, Busy("the translation took too long; send less text", 1))
        if call.error is not None:
            raise call.error
        return [call.found[number] for number in range(len(sources))]

    def close(self) -> None:
        """Stop the workers after the sentences that they are searching."""
        with self._changed:
            self._closed = True
            waiting = [*self._calls]
            self._changed.notify_all()
        for call in waiting:
            self._leave(call, Busy("the server is stopping", 5))
        for thread in self._threads:
            thread.join()

    def _enter(self, call: _Call) -> None:
        tokens = sum(map(len, call.sources))
        with self._changed:
            if self._closed:
                raise Busy("the server is stopping", 5)
            # A text that is longer than the queue is accepted when nothing else waits.
            if self.waiting_tokens and self.waiting_tokens + tokens > self.settings.queue_tokens:
                raise Busy("the server has too much to translate; try again later", 2)
            if call.caller is not self._last_caller:
                self._last_caller = call.caller
                self._others_at = self._last_at
                self._changed_at = call.since
            self._last_at = call.since
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
            self._departures += 1
            call.error = error
            call.done.set()

    def _work(self, work: Any) -> None:
        """Work on what waits until the queue is closed."""
        while True:
            with self._changed:
                while not self._closed and not self._may_work():
                    # If sentences wait, this worker is kept free for others, but not for ever.
                    self._changed.wait(QUIET / 10 if self._calls else None)
                if self._closed:
                    return
                key = self._calls[0].key
            work(key)

    def _may_work(self) -> bool:
        """Return whether a worker that is free takes what waits. The caller holds the lock.

        If all of it is one long document and others have sent requests lately, the last free worker
        waits for their next ones: a batch that is under way would delay them.
        """
        if len(self._calls) != 1 or self._workers == 1:
            return bool(self._calls)
        call = self._calls[0]
        is_newest = call.caller is self._last_caller
        others_at = self._others_at if is_newest else self._last_at
        is_long = self.waiting_tokens > self.settings.share_tokens * self._workers
        is_expected = time.monotonic() - others_at < QUIET
        is_last_free = self._running[call] == self._workers - 1
        return not (is_long and is_expected and is_last_free)

    def _search_batch(self, key: tuple[SearchConfig, bool]) -> None:
        """Take one batch and search it."""
        with self._changed:
            is_alone = len(self._calls) == 1
            is_quiet = time.monotonic() - self._changed_at > QUIET
            is_small = is_alone and not is_quiet
            settings = self.settings
            tokens = settings.share_tokens if is_small else settings.batch_tokens
            items = self._take(key, tokens=tokens)
            calls = {call for call, _ in items}
            self._running.update(calls)
        if not items:
            return  # another worker was faster
        config, token_scores = key
        try:
            found = self.engine.search(
                [call.sources[number] for call, number in items],
                config,
                prefixes=_prefixes(items),
                token_scores=token_scores,
            )
        except BaseException as error:
            self._fail(items, error)
            return
        finally:
            with self._changed:
                self._running -= Counter(calls)
        for item, hypotheses in zip(items, found, strict=True):
            self._deliver(item, hypotheses)

    def _stream(self, key: tuple[SearchConfig, bool]) -> None:
        """Feed sentences to a running search for as long as any wait."""
        config, token_scores = key
        feed = _Feed(self, key)
        try:
            for number, hypotheses in self.engine.stream(feed, config, token_scores=token_scores):  # type: ignore[attr-defined]
                self._deliver(feed.running.pop(number), hypotheses)
        except BaseException as error:
            self._fail([*feed.running.values()] or self._take_first(), error)

    def _take_first(self) -> list[_Item]:
        """Take the sentence that is next, if there is one."""
        with self._changed:
            return self._take(self._calls[0].key, tokens=1) if self._calls else []

    def _take(
        self,
        key: tuple[SearchConfig, bool],
        *,
        tokens: int,
        count: int | None = None,
        longest: int | None = None,
    ) -> list[_Item]:
        """Take sentences from the queue, one of each call in turn. The caller holds the lock.

        When all calls but one are complete, that one does not fill up the batch: the others would
        wait for it. Nor do calls take part that another worker searches, if there are others.
        """
        items: list[_Item] = []
        taken_tokens = 0
        possible = [call for call in self._calls if call.key == key]
        turn = deque([call for call in possible if call not in self._running] or possible)
        served: set[_Call] = set()
        while turn and (count is None or len(items) < count):
            call = turn.popleft()
            is_last = not turn and call in served and len(served) > 1
            if is_last and count is None:
                break
            length = call.next_length()
            if longest is not None and length > longest:
                continue
            if items and taken_tokens + length > tokens:
                break
            items.append((call, call.waiting.popleft()))
            served.add(call)
            taken_tokens += length
            if call.waiting:
                turn.append(call)

        # Calls that were served go behind those that were not.
        self.waiting_tokens -= taken_tokens
        others = [call for call in self._calls if call not in served]
        again = [call for call in self._calls if call in served and call.waiting]
        self._calls = deque([*others, *again])
        if self._calls:
            self._changed.notify()
        return items

    @staticmethod
    def _deliver(item: _Item, hypotheses: list[Hypothesis]) -> None:
        call, number = item
        call.found[number] = hypotheses
        if len(call.found) == len(call.sources):
            call.done.set()

    def _fail(self, items: Sequence[_Item], error: BaseException) -> None:
        """Pass an error of the engine on to the calls that it concerns."""
        for call in {call for call, _ in items}:
            self._leave(call, error)


class _Feed:
    """The sentences of the queue as jobs of a running search."""

    def __init__(self, queue: BatchingEngine, key: tuple[SearchConfig, bool]) -> None:
        self.queue = queue
        self.key = key
        self.running: dict[int, _Item] = {}
        self._numbers = itertools.count()
        self._departures = queue._departures  # those that were seen

    def longest(self) -> int:
        """Return how many tokens the next source needs, or 0 if no job of this search is next."""
        with self.queue._changed:
            calls = self.queue._calls
            return calls[0].next_length() if calls and calls[0].key == self.key else 0

    def take(self, count: int, longest: int) -> list[Job]:
        """Return jobs; none if the first that waits does not fit here and has waited for long."""
        from transduce.engines.torch import make_job

        with self.queue._changed:
            calls = self.queue._calls
            if not calls or self.queue._closed:
                return []
            fits = calls[0].key == self.key and calls[0].next_length() <= longest
            if not fits and time.monotonic() - calls[0].since > MOST_DELAYED:
                return []
            items = self.queue._take(self.key, tokens=count * longest, count=count, longest=longest)
        jobs = []
        for call, place in items:
            number = next(self._numbers)
            self.running[number] = (call, place)
            prefix = call.prefixes[place] if call.prefixes else ()
            jobs.append(make_job(number, call.sources[place], prefix, self.key[0]))
        return jobs

    def cancelled(self) -> list[int]:
        """Return the jobs whose calls have left since the last time, and forget them."""
        if self._departures == self.queue._departures:
            return []
        self._departures = self.queue._departures
        left = [number for number, (call, _) in self.running.items() if call.done.is_set()]
        for number in left:
            del self.running[number]
        return left


def _prefixes(items: Sequence[_Item]) -> Sequence[Sequence[int]]:
    """Return the prefixes of sentences, or none at all."""
    if not any(call.prefixes for call, _ in items):
        return ()
    return [call.prefixes[number] if call.prefixes else () for call, number in items]
