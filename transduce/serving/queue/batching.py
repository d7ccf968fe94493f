"""The queue in front of an engine: sentences of all requests share batches.

Requests take turns, one sentence each, so that long documents do not delay short requests. On a
CPU a worker takes a batch of sentences at a time; while other requests are expected, documents
leave one of several workers to them. On a GPU sentences join the running batch between two steps,
as soon as others have left it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.search.hypothesis import Hypothesis, Job
from transduce.serving.queue.calls import Call, Queue
from transduce.serving.refusals import Busy

if TYPE_CHECKING:  # importing torch takes seconds, and CTranslate2 does not need it
    from transduce.engines.torch import Engine

QUIET = 5.0  # seconds without another request, after which none is expected
USUAL_BEAM = 4  # with which tokens are counted: a wider beam takes longer for each
MOST_DELAYED = 0.25  # seconds that a long sentence waits before short ones wait for it


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """How much waits, and how much is translated together."""

    batch_tokens: int = 1_024  # source tokens in a batch
    # Source tokens in a batch of long requests while others are expected: a request that arrives
    # in the meantime waits for this batch.
    share_tokens: int = 128
    queue_tokens: int = 65_536  # source tokens that may wait

    def __post_init__(self) -> None:
        """Refuse a queue that nothing can enter."""
        if self.queue_tokens < 1:
            raise ConfigError(f"--queue-tokens is {self.queue_tokens}; expected at least 1")


class _Entry:
    """A call in the queue: its sentences that wait, and the results so far."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.key = (call.config, call.token_scores)  # only calls with the same key share a batch
        self.width = max(1.0, call.config.beam_size / USUAL_BEAM)  # the time that a token takes
        self.waiting = deque(range(len(call.sources)))  # numbers of sources
        self.waiting_tokens = sum(map(len, call.sources))
        self.found: dict[int, list[Hypothesis]] = {}
        self.since = time.monotonic()

    def next_length(self) -> int:
        """Return the number of tokens of the next sentence."""
        return len(self.call.sources[self.waiting[0]])

    def take_next(self) -> int:
        """Return the number of the next sentence, which waits no longer."""
        self.waiting_tokens -= self.next_length()
        return self.waiting.popleft()


_Item = tuple[_Entry, int]  # a call and the number of one of its sources


class BatchingEngine(Queue):
    """An engine that merges the searches of many threads into batches of another engine."""

    def __init__(self, engine: Engine, settings: QueueSettings) -> None:
        self.engine = engine
        self.settings = settings
        self._entries: deque[_Entry] = deque()  # calls with waiting sentences; the first is next
        # A call counts for at most half of the queue. So a text of any length is accepted if no
        # other one is as long, and short ones are accepted beside it.
        self._most_counted = max(1, settings.queue_tokens // 2)
        self._counted = 0  # tokens that wait, as far as they count
        self._changed = threading.Condition()
        self._closed = False
        self._departures = 0  # calls that have left without a result
        self._running: Counter[_Entry] = Counter()  # in how many batches each call is searched
        self._busy = 0  # workers that search a batch
        # The requests that have lately handed in sentences, and when; the newest is the last.
        self._arrivals: OrderedDict[Hashable, float] = OrderedDict()
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

    @property
    def waiting_tokens(self) -> int:
        """The number of source tokens that wait."""
        with self._changed:
            return sum(entry.waiting_tokens for entry in self._entries)

    def submit(self, call: Call) -> None:
        """Accept a call, or raise `Busy` if too much waits."""
        entry = _Entry(call)
        with self._changed:
            if self._closed:
                raise Busy("the server is stopping", 5)
            counted = self._counted + self._count(entry)
            if counted > self.settings.queue_tokens:
                raise Busy("the server has too much to translate; try again later", 2)
            self._note_arrival(call.caller, entry.since)
            self._counted = counted
            self._entries.append(entry)
            self._changed.notify()
        call.add_done_callback(lambda _: self._leave(entry))

    def _count(self, entry: _Entry) -> int:
        """Return how many tokens of a call count."""
        return min(entry.waiting_tokens, self._most_counted)

    def close(self) -> None:
        """Stop the workers after the sentences that they are searching."""
        with self._changed:
            self._closed = True
            waiting = [*self._entries]
            self._changed.notify_all()
        for entry in waiting:
            entry.call.fail(Busy("the server is stopping", 5))
        for thread in self._threads:
            thread.join()

    def _leave(self, entry: _Entry) -> None:
        """Remove a call that has ended. One that ended early leaves sentences behind."""
        if len(entry.found) == len(entry.call.sources):
            return
        with self._changed:
            self._counted -= self._count(entry)
            entry.waiting.clear()
            entry.waiting_tokens = 0
            if entry in self._entries:
                self._entries.remove(entry)
            self._departures += 1

    def _work(self, work: Any) -> None:
        """Work on what waits until the queue is closed."""
        while True:
            with self._changed:
                while not self._closed and not self._may_work():
                    # If sentences wait, this worker is kept free for others, but not for ever.
                    self._changed.wait(QUIET / 10 if self._entries else None)
                if self._closed:
                    return
                key = self._candidates()[0].key
            work(key)

    def _note_arrival(self, caller: Hashable, now: float) -> None:
        self._arrivals[caller] = now
        self._arrivals.move_to_end(caller)
        while next(iter(self._arrivals.values())) < now - QUIET:
            self._arrivals.popitem(last=False)

    def _may_work(self) -> bool:
        """Return whether a worker that is free takes what waits. The caller holds the lock.

        The last free worker waits for short requests if these are expected: a batch that is under
        way would delay them.
        """
        return bool(self._entries) and not (self._is_last_free() and self._expects_short())

    def _is_last_free(self) -> bool:
        """Return whether all of several workers but one are busy."""
        return self._workers > 1 and self._busy == self._workers - 1

    def _candidates(self) -> list[_Entry]:
        """Return the calls that a worker takes from: for the last free one, short ones."""
        short = [entry for entry in self._entries if not self._is_long(entry)]
        return short if short and self._is_last_free() else [*self._entries]

    def _expects_short(self) -> bool:
        """Return whether all that waits is long, and other requests have come lately."""
        if not all(map(self._is_long, self._entries)):
            return False
        waiting = {entry.call.caller for entry in self._entries}
        others = (at for caller, at in reversed(self._arrivals.items()) if caller not in waiting)
        newest = next(others, None)
        return newest is not None and time.monotonic() - newest < QUIET

    def _is_long(self, entry: _Entry) -> bool:
        """Return whether the rest of a call, or its next sentence, would keep workers busy long."""
        share = self.settings.share_tokens / entry.width
        return entry.waiting_tokens > share * self._workers or entry.next_length() > share

    def _batch_tokens(self) -> float:
        """Return how many tokens the next batch may have. The caller holds the lock."""
        if self._expects_short():
            return self.settings.share_tokens
        # What is less than a full batch for each worker that is free is divided among them.
        waiting = sum(entry.waiting_tokens * entry.width for entry in self._entries)
        share = max(self.settings.share_tokens, waiting / (self._workers - self._busy))
        return min(self.settings.batch_tokens, share)

    def _search_batch(self, key: tuple[SearchConfig, bool]) -> None:
        """Take one batch and search it."""
        with self._changed:
            items = self._take(key, tokens=self._batch_tokens())
            if not items:
                return  # another worker was faster
            entries = {entry for entry, _ in items}
            self._running.update(entries)
            self._busy += 1
        config, token_scores = key
        try:
            found = self.engine.search(
                [entry.call.sources[number] for entry, number in items],
                config,
                prefixes=_prefixes(items),
                token_scores=token_scores,
            )
        except BaseException as error:
            self._fail(items, error)
            return
        finally:
            with self._changed:
                self._running -= Counter(entries)
                self._busy -= 1
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
            return self._take(self._entries[0].key, tokens=1) if self._entries else []

    def _take(
        self,
        key: tuple[SearchConfig, bool],
        *,
        tokens: float,
        count: int | None = None,
        longest: int | None = None,
    ) -> list[_Item]:
        """Take sentences from the queue, one of each call in turn. The caller holds the lock.

        When a call is complete, long ones do not fill up the batch, nor does the only one that is
        left: it would wait for them. Nor do calls take part that another worker searches, if there
        are others.
        """
        items: list[_Item] = []
        taken_tokens = 0.0
        is_any_complete = False
        possible = [entry for entry in self._candidates() if entry.key == key]
        turn = deque([entry for entry in possible if entry not in self._running] or possible)
        served: set[_Entry] = set()
        while turn and (count is None or len(items) < count):
            entry = turn.popleft()
            is_patient = self._is_long(entry) or not turn
            if entry in served and is_any_complete and is_patient and count is None:
                continue
            length = entry.next_length()
            if longest is not None and length > longest:
                continue
            if items and taken_tokens + length * entry.width > tokens:
                break
            counted = self._count(entry)
            items.append((entry, entry.take_next()))
            self._counted += self._count(entry) - counted
            served.add(entry)
            taken_tokens += length * entry.width
            if entry.waiting:
                turn.append(entry)
            else:
                is_any_complete = True

        # Calls that were served go behind those that were not.
        others = [entry for entry in self._entries if entry not in served]
        again = [entry for entry in self._entries if entry in served and entry.waiting]
        self._entries = deque([*others, *again])
        if self._entries:
            self._changed.notify()
        return items

    @staticmethod
    def _deliver(item: _Item, hypotheses: list[Hypothesis]) -> None:
        entry, number = item
        entry.found[number] = hypotheses
        count = len(entry.call.sources)
        if len(entry.found) == count:
            entry.call.succeed([entry.found[number] for number in range(count)])

    @staticmethod
    def _fail(items: Sequence[_Item], error: BaseException) -> None:
        """Pass an error of the engine on to the calls that it concerns."""
        for entry, _ in items:
            entry.call.fail(error)


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
            entries = self.queue._entries
            return entries[0].next_length() if entries and entries[0].key == self.key else 0

    def take(self, count: int, longest: int) -> list[Job]:
        """Return jobs; none if the first that waits does not fit here and has waited for long."""
        from transduce.engines.torch import make_job

        with self.queue._changed:
            entries = self.queue._entries
            if not entries or self.queue._closed:
                return []
            fits = entries[0].key == self.key and entries[0].next_length() <= longest
            if not fits and time.monotonic() - entries[0].since > MOST_DELAYED:
                return []
            items = self.queue._take(self.key, tokens=count * longest, count=count, longest=longest)
        jobs = []
        for entry, place in items:
            number = next(self._numbers)
            self.running[number] = (entry, place)
            call = entry.call
            prefix = call.prefixes[place] if call.prefixes else ()
            jobs.append(make_job(number, call.sources[place], prefix, self.key[0]))
        return jobs

    def cancelled(self) -> list[int]:
        """Return the jobs whose calls have left since the last time, and forget them."""
        if self._departures == self.queue._departures:
            return []
        self._departures = self.queue._departures
        left = [number for number, (entry, _) in self.running.items() if entry.call.done()]
        for number in left:
            del self.running[number]
        return left


def _prefixes(items: Sequence[_Item]) -> Sequence[Sequence[int]]:
    """Return the prefixes of sentences, or none at all."""
    if not any(entry.call.prefixes for entry, _ in items):
        return ()
    return [entry.call.prefixes[number] if entry.call.prefixes else () for entry, number in items]
