"""The sentences that wait, as jobs of a search that is under way on a GPU."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from transduce.search.hypothesis import Hypothesis, Job
from transduce.serving.queue.turns import Item, SearchKey

if TYPE_CHECKING:
    from transduce.serving.queue.batching import BatchingEngine


class QueueFeed:
    """What a running search takes from a queue; the search asks between two steps."""

    def __init__(self, queue: BatchingEngine, key: SearchKey) -> None:
        self.queue = queue
        self.key = key
        self._running: dict[int, Item] = {}  # by the number of the job
        self._numbers = itertools.count()
        self._departures = queue.departures  # those that were seen

    @property
    def running(self) -> list[Item]:
        """The sentences that are searched."""
        return [*self._running.values()]

    def longest(self) -> int:
        """Return how many tokens the next source needs, or 0 if no job of this search is next."""
        return self.queue.next_length(self.key)

    def take(self, count: int, longest: int) -> list[Job]:
        """Return at most this many jobs, with sources of at most `longest` tokens."""
        from transduce.engines.torch import make_job

        jobs = []
        for entry, place in self.queue.take_for_stream(self.key, count, longest):
            number = next(self._numbers)
            self._running[number] = (entry, place)
            call = entry.call
            prefix = call.prefixes[place] if call.prefixes else ()
            jobs.append(make_job(number, call.sources[place], prefix, self.key[0]))
        return jobs

    def deliver(self, number: int, hypotheses: list[Hypothesis]) -> None:
        """Pass the result of a job on to its call."""
        entry, place = self._running.pop(number)
        entry.deliver(place, hypotheses)

    def cancelled(self) -> list[int]:
        """Return the jobs whose calls have left since the last time, and forget them."""
        if self._departures == self.queue.departures:
            return []
        self._departures = self.queue.departures
        left = [number for number, (entry, _) in self._running.items() if entry.call.done()]
        for number in left:
            del self._running[number]
        return left
