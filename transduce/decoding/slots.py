"""Searching on a GPU: B places of fixed shape, one step captured as a CUDA graph, finished places refilled.

A step is some two hundred small kernels, which a GPU finishes faster than Python can launch them. Shapes never
change, so the step is recorded once and replayed; a place whose sentence is done takes the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.config import SearchConfig
from transduce.data.batches import up_to
from transduce.decoding import beams
from transduce.decoding.hypothesis import Hypothesis
from transduce.decoding.search import results
from transduce.decoding.stepping import decode, memory
from transduce.model import Tokens, Transformer
from transduce.model.multi_head import KeyValues

CAPACITY = 32  # source and target positions come in such portions: as many graphs as there are sizes
ROOM = 2048 * 96  # target positions of all rows together
KEPT = 8  # shapes whose graphs are kept
STEPS = 4  # between two looks at which sentences are done: looking makes Python wait for the GPU


@dataclass(frozen=True)
class Job:
    """One sentence to search."""

    index: int
    source: Sequence[int]
    limit: int
    prefix: Sequence[int]
    seed: int


class Slots:
    """B sentences of at most S tokens, searched side by side to at most W tokens with their ends."""

    def __init__(self, model: Transformer, config: SearchConfig, B: int, S: int, W: int) -> None:
        weight, shape = model.target_embedding.weight, model.config
        self.model, self.config, self.device = model, config, weight.device
        self.B, self.S, self.W, self.R = B, S, W, B * config.width
        self.pad = shape.pad

        def buffers(rows: int, length: int) -> list[tuple[Tensor, Tensor]]:
            zeros = weight.new_zeros
            return [
                (zeros(rows, shape.h, length, shape.d_k), zeros(rows, shape.h, length, shape.d_v))
                for _ in range(shape.decoder_layers)
            ]

        self.memory, self.target = buffers(B, S), buffers(self.R, W)
        self.mask = torch.zeros(B, 1, 1, S, dtype=torch.bool, device=self.device)
        self.mask[..., 0] = True  # an empty place attends to something, and is not looked at
        self.tokens = torch.full((self.R,), self.pad, device=self.device)
        self.rows = torch.arange(self.R, device=self.device)
        self.columns = torch.arange(W, device=self.device)
        started = beams.begin([0] * B, self.pad, config, capacity=W - 1, device=self.device)
        self.beams = started.select(torch.arange(B, device=self.device))  # tensors of their own, to be written to
        self.graphs: dict[int, torch.cuda.CUDAGraph | None] = {}  # by the target positions that a step looks at

    def search(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Index and hypotheses of each job, as they are done."""
        waiting, places, ages = list(reversed(jobs)), dict[int, Job](), dict[int, int]()
        empty = list(range(self.B))
        while waiting or places:
            if waiting and empty and (len(empty) * 8 >= self.B or not places):
                now = [waiting.pop() for _ in empty[: len(waiting)]]
                self._fill(empty[: len(now)], now)
                for job in now:
                    places[empty[0]], ages[empty[0]] = job, 0
                    empty.pop(0)
            for _ in range(STEPS):
                self._move(min(self.W, up_to(1 + max(ages[place] for place in places), CAPACITY)))
                ages = {place: ages[place] + 1 for place in places}
            alive = self.beams.alive().tolist()
            done = [place for place in places if not alive[place]]
            found = results(self.beams.select(torch.tensor(done, device=self.device))) if done else []
            for place, hypotheses in zip(done, found, strict=True):
                yield places.pop(place).index, hypotheses
            empty += done

    def _fill(self, places: list[int], jobs: list[Job]) -> None:
        """Put sentences into places."""
        shape = self.model.config
        pad = (shape.source_vocab_size or shape.vocab_size) - 1
        pairs, mask = memory(self.model, Tokens.padded([job.source for job in jobs], pad).to(self.device))
        at, length = torch.tensor(places, device=self.device), mask.size(-1)
        for kept, new in zip(self.memory, pairs, strict=True):
            for buffer, values in zip(kept, new, strict=True):
                buffer[at, :, :length] = values.to(buffer.dtype)
        self.mask[at] = F.pad(mask, (0, self.S - length))
        fresh = beams.begin(
            [job.limit for job in jobs],
            self.pad,
            self.config,
            prefixes=[job.prefix for job in jobs],
            seeds=[job.seed for job in jobs],
            capacity=self.W - 1,
            device=self.device,
        )
        self.beams.assign(self.beams.refill(at, fresh))
        self.tokens.view(self.B, -1)[at] = self.pad

    def _move(self, capacity: int) -> None:
        """One step: the first time of a capacity to warm up, then recorded, then replayed."""
        if self.device.type != "cuda" or capacity not in self.graphs:
            self._step(capacity)
            self.graphs[capacity] = None
            return
        graph = self.graphs[capacity]
        if graph is None:
            graph = self.graphs[capacity] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step(capacity)
        graph.replay()

    def _step(self, capacity: int) -> None:
        """One token further everywhere. Everything is written where it was read, as a replay does."""
        at = self.beams.length.clamp(max=capacity - 1)  # empty places may have been further on
        at = at.repeat_interleave(self.config.width, output_size=self.R)  # (R,)
        seen = self.columns[:capacity] <= at[:, None]
        if self.model.config.r is not None:  # §4: a neighbourhood
            seen &= self.columns[:capacity] >= at[:, None] - self.model.config.r // 2
        targets = [(keys[:, :, :capacity], values[:, :, :capacity]) for keys, values in self.target]

        def attend(layer: int, q: Tensor, new: KeyValues) -> Tensor:
            keys, values = targets[layer]
            keys[self.rows, :, at], values[self.rows, :, at] = new.k[:, :, 0], new.v[:, :, 0]
            return F.scaled_dot_product_attention(q, keys, values, seen[:, None, None])

        logits = decode(self.model, self.tokens, at, self.memory, self.mask, attend)
        logits[:, -1] = -torch.inf  # padding is never said
        moved, rows, tokens = beams.advance(self.beams, F.log_softmax(logits.float(), dim=-1), self.config)
        self.beams.assign(moved)
        self.tokens.copy_(tokens)
        if self.config.width > 1 and self.config.temperature == 0:
            for pair in targets:
                for buffer in pair:
                    buffer.copy_(buffer.index_select(0, rows))


def search(
    model: Transformer, jobs: Sequence[Job], config: SearchConfig, kept: dict[tuple[Any, ...], Slots]
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Index and hypotheses of each job. Sentences of about one length share places; `kept` holds those of before."""
    for S, group in groupby(
        sorted(jobs, key=lambda job: -len(job.source)), lambda job: up_to(len(job.source), CAPACITY)
    ):
        some = list(group)
        W = max(config.limit(S), *(job.limit for job in some)) + 1
        most = max(1, ROOM // (config.width * up_to(W, CAPACITY)))
        key = (config, B := min(1 << (len(some) - 1).bit_length(), most), S, W)
        while len(kept) >= KEPT and key not in kept:
            kept.pop(next(iter(kept)))
        if key not in kept:
            kept[key] = Slots(model, config, B, S, W)
        yield from kept[key].search(some)
