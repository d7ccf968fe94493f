"""The queue in front of an engine: sentences of all requests share batches.

On a CPU a worker takes a batch of sentences at a time. On a GPU sentences join the running batch
between two steps, as soon as others have left it. `turns` decides which sentences are next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from transduce.serving.queue.calls import Call, Queue
from transduce.serving.queue.feed import QueueFeed
from transduce.serving.queue.turns import QUIET, Entry, Item, QueueSettings, SearchKey, Turns
from transduce.serving.refusals import Busy

if TYPE_CHECKING:  # importing torch takes seconds, and CTranslate2 does not need it
    from transduce.engines.torch import Engine

MOST_DELAYED = 0.25  # seconds that a long sentence waits before short ones wait for it


class BatchingEngine(Queue):
    """An engine that merges the searches of many threads into batches of another engine."""

    def __init__(self, engine: Engine, settings: QueueSettings) -> None:
        self.engine = engine
        self.departures = 0  # calls that have left without a result
        workers: int = getattr(engine, "workers", 1)
        self._turns = Turns(settings, workers)
        self._changed = threading.Condition()  # is held while the turns are asked
        self._closed = False
        can_stream = getattr(engine, "can_stream", None)
        self.is_streaming = bool(can_stream and can_stream())
        work = self._stream if self.is_streaming else self._search_batch
        self._threads: list[threading.Thread] = []
        for number in range(workers):
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
            return self._turns.waiting_tokens

    def submit(self, call: Call) -> None:
        """Accept a call, or raise `Busy` if too much waits."""
        entry = Entry(call)
        with self._changed:
            if self._closed:
                raise Busy("the server is stopping", 5)
            self._turns.add(entry)
            self._changed.notify()
        call.add_done_callback(lambda _: self._leave(entry))

    def close(self) -> None:
        """Stop the workers after the sentences that they are searching."""
        with self._changed:
            self._closed = True
            waiting = [*self._turns.entries]
            self._changed.notify_all()
        for entry in waiting:
            entry.call.fail(Busy("the server is stopping", 5))
        for thread in self._threads:
            thread.join()

    def next_length(self, key: SearchKey) -> int:
        """Return how many tokens the next sentence has, or 0 if it does not belong to a search."""
        with self._changed:
            entries = self._turns.entries
            return entries[0].next_length() if entries and entries[0].key == key else 0

    def take_for_stream(self, key: SearchKey, count: int, longest: int) -> list[Item]:
        """Take sentences; none if the first that waits does not fit and has waited for long."""
        with self._changed:
            entries = self._turns.entries
            if not entries or self._closed:
                return []
            fits = entries[0].key == key and entries[0].next_length() <= longest
            if not fits and time.monotonic() - entries[0].since > MOST_DELAYED:
                return []
            return self._turns.take(key, tokens=count * longest, count=count, longest=longest)

    def _leave(self, entry: Entry) -> None:
        """Remove a call that has ended, if it ended early."""
        if entry.is_complete:
            return
        with self._changed:
            self._turns.remove(entry)
            self.departures += 1

    def _work(self, work: Callable[[SearchKey], None]) -> None:
        """Work on what waits until the queue is closed."""
        while True:
            with self._changed:
                while not self._closed and not self._turns.may_work():
                    # If sentences wait, this worker is kept free for others, but not for ever.
                    self._changed.wait(QUIET / 10 if self._turns.entries else None)
                if self._closed:
                    return
                key = self._turns.next_key()
            work(key)

    def _search_batch(self, key: SearchKey) -> None:
        """Take one batch and search it."""
        with self._changed:
            items = self._turns.take_batch(key)
            if not items:
                return  # another worker was faster
            if self._turns.entries:
                self._changed.notify()
        config, token_scores = key
        try:
            found = self.engine.search(
                [entry.call.sources[number] for entry, number in items],
                config,
                prefixes=_prefixes(items),
                token_scores=token_scores,
            )
        except BaseException as error:
            _fail(items, error)
            return
        finally:
            with self._changed:
                self._turns.end_batch(items)
        for (entry, number), hypotheses in zip(items, found, strict=True):
            entry.deliver(number, hypotheses)

    def _stream(self, key: SearchKey) -> None:
        """Feed sentences to a running search for as long as any wait."""
        config, token_scores = key
        feed = QueueFeed(self, key)
        try:
            for number, hypotheses in self.engine.stream(feed, config, token_scores=token_scores):  # type: ignore[attr-defined]
                feed.deliver(number, hypotheses)
        except BaseException as error:
            _fail(feed.running or self._take_first(), error)

    def _take_first(self) -> list[Item]:
        """Take the sentence that is next, if there is one."""
        with self._changed:
            entries = self._turns.entries
            return self._turns.take(entries[0].key, tokens=1) if entries else []


def _fail(items: Sequence[Item], error: BaseException) -> None:
    """Pass an error of the engine on to the calls that it concerns."""
    for entry, _ in items:
        entry.call.fail(error)


def _prefixes(items: Sequence[Item]) -> Sequence[Sequence[int]]:
    """Return the prefixes of sentences, or none at all."""
    if not any(entry.call.prefixes for entry, _ in items):
        return ()
    return [entry.call.prefixes[number] if entry.call.prefixes else () for entry, number in items]
