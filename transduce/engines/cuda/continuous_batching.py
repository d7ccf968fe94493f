"""Continuous batching: sentences join and leave the batch of a running search on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch

from transduce.config import SearchConfig
from transduce.data.batches import up_to
from transduce.engines.cuda.slots import Slots
from transduce.model import Transformer
from transduce.model.tokens import refuse_empty
from transduce.search.hypothesis import Hypothesis, Job

# Source and target lengths are rounded up to a multiple of this, which limits the number of graphs.
CAPACITY = 32
ROOM = 2048 * 96  # the largest number of target positions of all rows, and of source positions
KEPT = 8  # how many shapes keep their graphs
STREAM_PLACES = 64  # sentences that are searched at once while others arrive
STREAM_SOURCE = 64  # source tokens that a place has at least, so that most sentences fit
STREAM_STEPS = 4  # steps between two checks while many arrive, and Python answers requests, too
# Shapes that ran out of memory: the number of places that fit.
_FITTED: WeakKeyDictionary[Transformer, dict[tuple[SearchConfig, int, int], int]] = (
    WeakKeyDictionary()
)


def search(
    model: Transformer,
    jobs: Sequence[Job],
    config: SearchConfig,
    kept: dict[tuple[Any, ...], Slots],
    *,
    token_scores: bool = True,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield the number and the hypotheses of each job.

    Sentences of about the same length share places. `kept` holds the places of earlier calls.
    """
    jobs = sorted(jobs, key=lambda job: -len(job.source))
    if jobs:
        refuse_empty([jobs[-1].source])
        model.check_length(len(jobs[0].source))
    for portions, group in groupby(jobs, lambda job: -(-len(job.source) // CAPACITY)):
        S = portions * CAPACITY
        waiting = list(group)
        limit = max(config.limit(S), *(job.limit for job in waiting))
        W = up_to(limit + 1, CAPACITY)
        yield from _search_shape(model, waiting, config, S, W, kept, token_scores)


class Feed(Protocol):
    """Jobs that arrive while others are searched."""

    def longest(self) -> int:
        """Return how many tokens the next source needs, or 0 if no job waits."""

    def take(self, count: int, longest: int) -> list[Job]:
        """Return at most this many jobs, with sources of at most `longest` tokens."""

    def cancelled(self) -> Collection[int]:
        """Return the numbers of jobs that were taken and are not needed any more."""


def stream(
    model: Transformer,
    feed: Feed,
    config: SearchConfig,
    kept: dict[tuple[Any, ...], Slots],
    *,
    token_scores: bool = True,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield the number and the hypotheses of each job of a feed, until none waits.

    Jobs join the running batch between steps, and leave it when they are done or cancelled. Those
    with longer sources than its places have begin when the batch is empty; the feed decides when it
    holds others back for them.
    """
    while needed := feed.longest():
        model.check_length(needed)
        S = max(STREAM_SOURCE, 1 << (needed - 1).bit_length())
        W = up_to(config.limit(S) + 1, CAPACITY)
        B = max(1, min(STREAM_PLACES, ROOM // max(config.width * W, S)))
        slots = _places(model, (config, B, S, W, STREAM_STEPS), kept)
        yield from slots.search(partial(feed.take, longest=S), token_scores, feed.cancelled)


def _search_shape(
    model: Transformer,
    waiting: list[Job],
    config: SearchConfig,
    S: int,
    W: int,
    kept: dict[tuple[Any, ...], Slots],
    token_scores: bool,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Search jobs of at most S source and W target tokens, with fewer places if memory is short."""
    fitted = _FITTED.setdefault(model, {})
    most_places = max(1, ROOM // max(config.width * W, S))
    while waiting:
        wanted = 1 << (len(waiting) - 1).bit_length()
        B = min(wanted, fitted.get((config, S, W), most_places))
        key = (config, B, S, W)
        other_shapes = len(kept) - (key in kept)
        done: set[int] = set()
        try:
            slots = _places(model, key, kept)
            for number, hypotheses in slots.search(_taking(waiting), token_scores):
                yield number, hypotheses
                done.add(number)
        except torch.OutOfMemoryError:
            if not other_shapes and B == 1:
                raise
        else:
            break

        # Only here, after the except block, has the error released the memory of its frames.
        kept.clear()
        torch.cuda.empty_cache()
        # Try again without the places of other shapes, or else with half as many places.
        if not other_shapes:
            fitted[config, S, W] = B // 2
        waiting = [job for job in waiting if job.number not in done]


def _taking(jobs: Sequence[Job]) -> Callable[[int], list[Job]]:
    """Return a function that takes the next jobs of a list."""
    waiting = iter(jobs)
    return lambda count: list(islice(waiting, count))


def _places(model: Transformer, key: tuple[Any, ...], kept: dict[tuple[Any, ...], Slots]) -> Slots:
    """Return places of this shape, the arguments of `Slots`, from `kept`, or new ones.

    The least recently used shapes are dropped from `kept`.
    """
    while len(kept) >= KEPT and key not in kept:
        kept.pop(next(iter(kept)))
    kept[key] = kept.pop(key) if key in kept else Slots(model, *key)
    return kept[key]
