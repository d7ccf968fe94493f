"""Whose turn it is: the calls that wait, and the sentences that are searched next.

Requests take turns, one sentence each, so that long documents do not delay short requests. While
other requests are expected, documents leave one of several workers to them. The turns know neither
threads nor engines: `batching` holds a lock while it asks them.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.search.hypothesis import Hypothesis
from transduce.serving.queue.calls import Call
from transduce.serving.refusals import Busy

QUIET = 5.0  # seconds without another request, after which none is expected
USUAL_BEAM = 4  # with which tokens are counted: a wider beam takes longer for each

SearchKey = tuple[SearchConfig, bool]  # calls with the same key may share a batch


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


class Entry:
    """A call in the queue: its sentences that wait, and the results so far."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.key: SearchKey = (call.config, call.token_scores)
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

    def forget_waiting(self) -> None:
        """Let no sentence wait any more."""
        self.waiting.clear()
        self.waiting_tokens = 0

    def deliver(self, number: int, hypotheses: list[Hypothesis]) -> None:
        """Note the result of a sentence, and end the call with the last one."""
        self.found[number] = hypotheses
        if self.is_complete:
            self.call.succeed([self.found[number] for number in range(len(self.call.sources))])

    @property
    def is_complete(self) -> bool:
        """Whether all sentences have a result."""
        return len(self.found) == len(self.call.sources)


Item = tuple[Entry, int]  # a call, and the number of one of its sources


class Turns:
    """The calls with sentences that wait, in the order of their turns."""

    def __init__(self, settings: QueueSettings, workers: int) -> None:
        self.settings = settings
        self.workers = workers
        self.entries: deque[Entry] = deque()  # the first is next
        # A call counts for at most half of the queue. So a text of any length is accepted if no
        # other one is as long, and short ones are accepted beside it.
        self._most_counted = max(1, settings.queue_tokens // 2)
        self._counted = 0  # tokens that wait, as far as they count
        self._searched: Counter[Entry] = Counter()  # in how many batches each call is searched
        self._busy = 0  # workers that search a batch
        # The requests that have lately handed in sentences, and when; the newest is the last.
        self._arrivals: OrderedDict[Hashable, float] = OrderedDict()

    @property
    def waiting_tokens(self) -> int:
        """The number of source tokens that wait."""
        return sum(entry.waiting_tokens for entry in self.entries)

    def add(self, entry: Entry) -> None:
        """Append a call, or raise `Busy` if too much waits."""
        counted = self._counted + self._count(entry)
        if counted > self.settings.queue_tokens:
            raise Busy("the server has too much to translate; try again later", 2)
        self._note_arrival(entry.call.caller, entry.since)
        self._counted = counted
        self.entries.append(entry)

    def remove(self, entry: Entry) -> None:
        """Remove a call that has ended early, with the sentences that it leaves behind."""
        self._counted -= self._count(entry)
        entry.forget_waiting()
        if entry in self.entries:
            self.entries.remove(entry)

    def may_work(self) -> bool:
        """Return whether a worker that is free takes what waits.

        The last free worker waits for short requests if these are expected: a batch that is under
        way would delay them.
        """
        return bool(self.entries) and not (self._is_last_free() and self._expects_short())

    def next_key(self) -> SearchKey:
        """Return the key of the next batch."""
        return self._candidates()[0].key

    def take_batch(self, key: SearchKey) -> list[Item]:
        """Take the sentences of a batch for a worker, which is busy until `end_batch`."""
        items = self.take(key, tokens=self._batch_tokens())
        if items:
            self._searched.update({entry for entry, _ in items})
            self._busy += 1
        return items

    def end_batch(self, items: Sequence[Item]) -> None:
        """Note that a worker is free again."""
        self._searched -= Counter({entry for entry, _ in items})
        self._busy -= 1

    def take(
        self,
        key: SearchKey,
        *,
        tokens: float,
        count: int | None = None,
        longest: int | None = None,
    ) -> list[Item]:
        """Take sentences, one of each call in turn.

        When a call is complete, long ones do not fill up the batch, nor does the only one that is
        left: it would wait for them. Nor do calls take part that another worker searches, if there
        are others.
        """
        items: list[Item] = []
        taken_tokens = 0.0
        is_any_complete = False
        possible = [entry for entry in self._candidates() if entry.key == key]
        turn = deque([entry for entry in possible if entry not in self._searched] or possible)
        served: set[Entry] = set()
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
        others = [entry for entry in self.entries if entry not in served]
        again = [entry for entry in self.entries if entry in served and entry.waiting]
        self.entries = deque([*others, *again])
        return items

    def _count(self, entry: Entry) -> int:
        """Return how many tokens of a call count."""
        return min(entry.waiting_tokens, self._most_counted)

    def _note_arrival(self, caller: Hashable, now: float) -> None:
        self._arrivals[caller] = now
        self._arrivals.move_to_end(caller)
        while next(iter(self._arrivals.values())) < now - QUIET:
            self._arrivals.popitem(last=False)

    def _is_last_free(self) -> bool:
        """Return whether all of several workers but one are busy."""
        return self.workers > 1 and self._busy == self.workers - 1

    def _candidates(self) -> list[Entry]:
        """Return the calls that a worker takes from: for the last free one, short ones."""
        short = [entry for entry in self.entries if not self._is_long(entry)]
        return short if short and self._is_last_free() else [*self.entries]

    def _expects_short(self) -> bool:
        """Return whether all that waits is long, and other requests have come lately."""
        if not all(map(self._is_long, self.entries)):
            return False
        waiting = {entry.call.caller for entry in self.entries}
        others = (at for caller, at in reversed(self._arrivals.items()) if caller not in waiting)
        newest = next(others, None)
        return newest is not None and time.monotonic() - newest < QUIET

    def _is_long(self, entry: Entry) -> bool:
        """Return whether the rest of a call, or its next sentence, would keep workers busy long."""
        share = self.settings.share_tokens / entry.width
        return entry.waiting_tokens > share * self.workers or entry.next_length() > share

    def _batch_tokens(self) -> float:
        """Return how many tokens the next batch may have."""
        if self._expects_short():
            return self.settings.share_tokens
        # What is less than a full batch for each worker that is free is divided among them.
        waiting = sum(entry.waiting_tokens * entry.width for entry in self.entries)
        share = max(self.settings.share_tokens, waiting / (self.workers - self._busy))
        return min(self.settings.batch_tokens, share)
