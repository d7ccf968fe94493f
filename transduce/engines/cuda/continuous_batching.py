"""Searching on a GPU: B places of fixed shape, some steps captured as a CUDA graph, finished places refilled.

A step is some seventy small kernels, which a GPU finishes faster than Python can launch them. Shapes never change, so
steps are recorded once and replayed, and so is the reading of new sources; a place whose sentence is done takes the
next one, and until then its part of a step changes nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, groupby
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.config import SearchConfig
from transduce.data.batches import up_to
from transduce.engines.cuda.fixed_state import FixedState
from transduce.kernels.beam_step import fits, settle
from transduce.kernels.topk import pick
from transduce.model import Transformer
from transduce.model.tokens import refuse_empty
from transduce.search import beams
from transduce.search.hypothesis import Hypothesis, Job
from transduce.search.search import results

# Source and target positions come in such portions: as many graphs as there are sizes.
CAPACITY = 32
ROOM = 2048 * 96  # target positions of all rows together, and source positions
KEPT = 8  # shapes whose graphs are kept
READ = 256  # sources at once: the GPU begins while Python prepares the next
STEPS = 2  # between two looks at which sentences are done
_RECORDING = threading.Lock()  # one graph at a time, says torch
# Where memory was short: how many places of a shape have found room.
_FITTED: WeakKeyDictionary[Transformer, dict[tuple[SearchConfig, int, int], int]] = (
    WeakKeyDictionary()
)


class Slots:
    """B sentences of at most S tokens, searched side by side to at most W tokens with their ends."""

    def __init__(self, model: Transformer, config: SearchConfig, B: int, S: int, W: int) -> None:
        self.config, self.device, self.pad = (
            config,
            model.target_embedding.weight.device,
            model.config.pad,
        )
        self.B, self.S, self.W, R = B, S, W, B * config.width
        self.source_pad = model.config.source_pad
        self.model = model
        self.tokens = torch.full((R,), self.pad, device=self.device)
        self.fresh = beams.begin([0], self.pad, config, capacity=W - 1, device=self.device)
        self.beams = self.fresh.select(torch.zeros(B, dtype=torch.long, device=self.device)).over()
        self.state = FixedState(model, self.beams.length, S, R, W)
        self.columns = torch.arange(W, device=self.device)
        self.everyone = list(range(B))
        # To look at.
        self.alive = torch.empty(B, dtype=torch.bool, pin_memory=self.device.type == "cuda")
        self.inputs: dict[int, tuple[Tensor, Tensor]] = {}  # of so many sources at once
        self.graphs = Graphs(self.device)

    def search(
        self, jobs: Sequence[Job], token_scores: bool
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Number and hypotheses of each job, as they are done.

        While one looks at what some steps did, the next are under way, so that the GPU does not wait for Python.
        """
        self.graphs.run("weights", self.state.refresh)
        waiting, places, empty = (
            list(reversed(jobs)),
            dict[int, tuple[Job, int]](),
            list(range(self.B)),
        )
        begun, under_way = 0, deque[tuple[int, Any]]()  # steps begun, and after each round of them
        while waiting or places:
            if waiting and empty and (len(empty) * 8 >= self.B or not places):
                now = [waiting.pop() for _ in empty[: len(waiting)]]
                for start in range(0, len(now), READ):
                    self._fill(
                        empty[start : min(start + READ, len(now))], now[start : start + READ]
                    )
                places |= {place: (job, begun) for place, job in zip(empty, now, strict=False)}
                empty = empty[len(now) :]
            needed = max(since + job.limit + 1 - begun for job, since in places.values())
            if needed > 0:
                count = min(STEPS, needed)
                self.graphs.run(f"{count} steps", partial(self._steps, count))
                begun += count
                under_way.append(
                    (
                        begun,
                        torch.cuda.current_stream().record_event()
                        if self.graphs.captures
                        else None,
                    )
                )
                if len(under_way) < 2:
                    continue
            ended, event = under_way.popleft()
            if event:
                event.synchronize()
            alive = self.alive.tolist()
            done = [
                place for place, (_, since) in places.items() if not alive[place] and since < ended
            ]
            if not done:
                continue
            which = slice(None) if done == self.everyone else torch.tensor(done, device=self.device)
            numbers = [places.pop(place)[0].number for place in done]
            yield from zip(numbers, results(self.beams, which, token_scores), strict=True)
            empty += done

    def _fill(self, places: list[int], jobs: list[Job]) -> None:
        """Put sentences into places. Their number is rounded up, by the last one again, to a power of two."""
        more = (1 << (len(jobs) - 1).bit_length()) - len(jobs)
        places, jobs = [*places, *places[-1:] * more], [*jobs, *jobs[-1:] * more]
        for job in jobs:
            if job.prefix:
                beams.check_prefix(job.prefix, job.limit, self.pad)
        n = len(jobs)
        # Pinned, and new each time: a copy from other memory would wait for the sources before to be read.
        numbers = torch.empty(
            n, 3 + self.S + self.W, dtype=torch.int32, pin_memory=self.graphs.captures
        )
        table = numbers.numpy()
        table[:, 0], table[:, 1], table[:, 2] = (
            places,
            [len(job.source) for job in jobs],
            [job.limit for job in jobs],
        )
        _pad([job.source for job in jobs], self.source_pad, table[:, 3 : 3 + self.S])
        _pad([job.prefix for job in jobs], -1, table[:, 3 + self.S :])
        if n not in self.inputs:
            chance = self.fresh.chance.new_zeros(n, self.W, self.config.width)
            self.inputs[n] = torch.empty_like(numbers, device=self.device), chance
        self.inputs[n][0].copy_(numbers, non_blocking=True)
        if self.config.temperature > 0:
            seeds, limits = [job.seed for job in jobs], [job.limit for job in jobs]
            self.inputs[n][1].copy_(beams.draws(seeds, limits, self.W, self.config))
        self.graphs.run(f"read {n}", lambda: self._read(*self.inputs[n]))

    def _read(self, numbers: Tensor, chance: Tensor) -> None:
        """Begin the searches that the rows of `_fill` describe."""
        at, lengths, limit = numbers[:, :3].unbind(1)
        at, ids, prefix = at.long(), numbers[:, 3 : 3 + self.S], numbers[:, 3 + self.S :]
        self.state.read(at, ids.contiguous(), lengths.contiguous())
        fresh = replace(
            self.fresh.repeat(len(at)), limit=limit.long(), prefix=prefix.long(), chance=chance
        )
        self.beams.put(at, fresh)
        self.tokens.view(self.B, -1).index_fill_(0, at, self.pad)

    def _steps(self, count: int) -> None:
        for _ in range(count):
            self._step()
        self.alive.copy_(self.beams.alive(), non_blocking=True)

    def _step(self) -> None:
        """One token further everywhere. Everything is written where it was read, as a replay does."""
        logits, _ = self.model.decode(self.tokens[:, None], self.state)  # type: ignore[arg-type]
        logits, ancestors = logits[:, 0], self.state.ancestors
        if fits(self.config):
            picks = pick(logits, self.beams, self.config)
            settle(self.beams, picks, self.tokens, ancestors, self.config, pad=self.pad)
            return
        at = self.beams.length.repeat_interleave(self.config.width, output_size=len(self.tokens))[
            :, None
        ]
        logits[:, -1] = -torch.inf  # padding is never said
        moved, rows, tokens = beams.advance(
            self.beams, F.log_softmax(logits.float(), dim=-1), self.config
        )
        self.beams.assign(moved)
        self.tokens.copy_(tokens)
        ancestors.copy_(ancestors[rows].where(self.columns < at, rows[:, None].int()))


class Graphs:
    """What is run again and again: the first time to warm up, then recorded, then replayed."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.captures = device, device.type == "cuda"
        self.recorded: dict[str, torch.cuda.CUDAGraph | None] = {}
        # Nothing outlasts a replay: all share it.
        self.pool = torch.cuda.graph_pool_handle() if self.captures else None

    def run(self, name: str, function: Callable[[], None]) -> None:
        """Do what the function does, on the same tensors as ever."""
        if not self.captures or name not in self.recorded:
            function()
            self.recorded[name] = None
            return
        graph = self.recorded[name]
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with _RECORDING:
                torch.cuda.synchronize(self.device)
                # Each thread has its own, and none can be made while recording.
                torch.cuda.current_blas_handle()
                with torch.cuda.graph(graph, self.pool, _stream(self.device), "thread_local"):
                    function()
            self.recorded[name] = graph
        graph.replay()


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Where graphs are recorded. The stream that torch would take is on the device of the first graph of all."""
    return torch.cuda.Stream(device)


def _pad(
    rows: Sequence[Sequence[int]], filler: int, table: np.ndarray[Any, np.dtype[np.int32]]
) -> None:
    """Write rows of ids of any length into a table that is wide enough."""
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    table[:] = filler
    table[np.arange(table.shape[1]) < lengths[:, None]] = np.fromiter(
        chain.from_iterable(rows), np.int32
    )


def search(
    model: Transformer,
    jobs: Sequence[Job],
    config: SearchConfig,
    kept: dict[tuple[Any, ...], Slots],
    *,
    token_scores: bool = True,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Number and hypotheses of each job. Sentences of about one length share places; `kept` holds those of before."""
    jobs = sorted(jobs, key=lambda job: -len(job.source))
    if jobs:
        refuse_empty([jobs[-1].source])
        model.check_length(len(jobs[0].source))
    for portions, group in groupby(jobs, lambda job: -(-len(job.source) // CAPACITY)):
        S, some = portions * CAPACITY, list(group)
        W = up_to(max(config.limit(S), *(job.limit for job in some)) + 1, CAPACITY)
        fitted, whole = _FITTED.setdefault(model, {}), max(1, ROOM // max(config.width * W, S))
        while some:
            key = (
                config,
                B := min(1 << (len(some) - 1).bit_length(), fitted.get((config, S, W), whole)),
                S,
                W,
            )
            others, done = len(kept) - (key in kept), set[int]()
            try:
                for number, hypotheses in _places(model, key, kept).search(some, token_scores):
                    yield number, hypotheses
                    done.add(number)
            except torch.OutOfMemoryError:
                if not others and B == 1:
                    raise
            else:
                break
            # Here the error's frames are gone, with all that they held.
            kept.clear()
            torch.cuda.empty_cache()
            # Without searches of other shapes there might have been room; else with fewer places.
            if not others:
                fitted[config, S, W] = B // 2
            some = [job for job in some if job.number not in done]


def _places(
    model: Transformer, key: tuple[SearchConfig, int, int, int], kept: dict[tuple[Any, ...], Slots]
) -> Slots:
    """The places of that shape: those of before, or new ones in the place of what was not used for the longest."""
    while len(kept) >= KEPT and key not in kept:
        kept.pop(next(iter(kept)))
    kept[key] = kept.pop(key) if key in kept else Slots(model, *key)
    return kept[key]
