"""B places on a GPU, in each of which one sentence is searched, with steps as CUDA graphs.

A step consists of about seventy small kernels, which a GPU finishes faster than Python can launch
them. Since shapes never change, steps and the encoding of new sources are recorded once as CUDA
graphs and replayed. When the sentence in a place is finished, the place takes the next sentence;
until then its part of a step changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.config import SearchConfig
from transduce.engines.cuda.fixed_state import FixedState
from transduce.engines.cuda.graphs import Graphs
from transduce.kernels.beam_step import fits, settle
from transduce.kernels.topk import pick
from transduce.model import Transformer
from transduce.search.beam_step import advance
from transduce.search.beams import begin, check_prefix, draws
from transduce.search.hypothesis import Hypothesis, Job
from transduce.search.search import Array, as_hypotheses

READ = 256  # sources encoded at once: the GPU starts while Python prepares the next
STEPS = 2  # steps between two checks for finished sentences
FEW = 1 / 8  # of the places: so many are filled at a time, and a search with no more is not busy


class Slots:
    """B places for sentences of at most S tokens and targets of at most W tokens with the end."""

    def __init__(
        self,
        model: Transformer,
        config: SearchConfig,
        B: int,
        S: int,
        W: int,
        steps: int = STEPS,
    ) -> None:
        """`steps` is the number of steps between two checks while many places are taken."""
        self.model = model
        self.config = config
        self.B = B
        self.S = S
        self.W = W
        self.steps = steps
        self.pad = model.config.pad
        self.source_pad = model.config.source_pad
        self.device = model.target_embedding.weight.device
        self.graphs = Graphs(self.device)

        # The state of the search; all places are empty at first.
        R = B * config.width
        self.tokens = torch.full((R,), self.pad, device=self.device)
        self.fresh = begin([0], self.pad, config, capacity=W - 1, device=self.device)
        first = torch.zeros(B, dtype=torch.long, device=self.device)
        self.beams = self.fresh.select(first).over()
        self.state = FixedState(model, self.beams.length, S, R, W)
        self.columns = torch.arange(W, device=self.device)

        # Buffers between the CPU and the GPU. Inputs are by the number of sources encoded at once.
        # Of reports there are two: while the CPU reads one, the GPU writes the other.
        self.inputs: dict[int, tuple[Tensor, Tensor]] = {}
        self.report = self._make_report(out=None)
        self.copies = deque(
            torch.empty_like(self.report, device="cpu", pin_memory=self.graphs.captures)
            for _ in range(2)
        )

    def search(
        self,
        take: Callable[[int], list[Job]],
        token_scores: bool,
        cancelled: Callable[[], Collection[int]] = tuple,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the number and the hypotheses of each job, in the order in which they finish.

        `take` returns at most the given number of jobs; it is called between steps, and the search
        ends when there are none. `cancelled` returns the numbers of jobs that leave their places
        without a result. While Python examines the result of one round of steps, the GPU runs the
        next one.
        """
        self.graphs.run("weights", self.state.refresh)
        empty = list(range(self.B))
        places: dict[int, tuple[Job, int]] = {}  # the job in a place, and the step when it began
        begun = 0  # steps that have been launched
        under_way: deque[tuple[int, Any, Tensor]] = deque()  # last step, event and report of rounds
        while True:
            # What a place without a job still computes is ignored.
            unwanted = cancelled()
            if unwanted:
                left = [place for place, (job, _) in places.items() if job.number in unwanted]
                for place in left:
                    del places[place]
                empty += left

            # Fill empty places: several at a time, unless nothing else is left to do.
            if empty and (len(empty) >= FEW * self.B or not places):
                new_jobs = take(len(empty))
                filled = empty[: len(new_jobs)]
                empty = empty[len(new_jobs) :]
                for start in range(0, len(new_jobs), READ):
                    self._fill(filled[start : start + READ], new_jobs[start : start + READ])
                for place, job in zip(filled, new_jobs, strict=True):
                    places[place] = (job, begun)
            if not places:
                return

            # Launch the next round of steps, so that two rounds are under way.
            steps_needed = max(since + job.limit + 1 - begun for job, since in places.values())
            if steps_needed > 0:
                is_busy = len(places) > FEW * self.B
                count = min(self.steps if is_busy else STEPS, steps_needed)
                self.graphs.run(f"{count} steps", partial(self._steps, count))
                begun += count
                report = self.copies[0].copy_(self.report, non_blocking=True)
                self.copies.rotate()
                under_way.append((begun, self.graphs.record_event(), report))
                if len(under_way) < 2:
                    continue

            # Collect the sentences that finished in the earlier round.
            last_step, event, report = under_way.popleft()
            if event:
                event.synchronize()
            rows = report.numpy()
            alive = rows[:, 0].tolist()
            done = []
            for place, (_, since) in places.items():
                if not alive[place] and since < last_step:
                    done.append(place)
            if done:
                numbers = [places.pop(place)[0].number for place in done]
                found = self._hypotheses(rows[done], token_scores)
                yield from zip(numbers, found, strict=True)
                empty += done

    def _fill(self, places: list[int], jobs: list[Job]) -> None:
        """Put sentences into places.

        Their number is rounded up to a power of two by repeating the last one, so that few graphs
        are needed.
        """
        repeats = (1 << (len(jobs) - 1).bit_length()) - len(jobs)
        places = [*places, *places[-1:] * repeats]
        jobs = [*jobs, *jobs[-1:] * repeats]
        for job in jobs:
            if job.prefix:
                check_prefix(job.prefix, job.limit, self.pad)

        # One row per job: place, source length, limit, source (S) and prefix (W). The memory is
        # pinned and new each time: a copy from other memory would wait for earlier sources.
        n = len(jobs)
        numbers = torch.empty(
            n, 3 + self.S + self.W, dtype=torch.int32, pin_memory=self.graphs.captures
        )
        limits = [job.limit for job in jobs]
        table = numbers.numpy()
        table[:, 0] = places
        table[:, 1] = [len(job.source) for job in jobs]
        table[:, 2] = limits
        _pad([job.source for job in jobs], self.source_pad, table[:, 3 : 3 + self.S])
        _pad([job.prefix for job in jobs], -1, table[:, 3 + self.S :])

        # Copy it to the GPU, with random numbers if the search samples.
        if n not in self.inputs:
            new_chance = self.fresh.chance.new_zeros(n, self.W, self.config.width)
            self.inputs[n] = torch.empty_like(numbers, device=self.device), new_chance
        numbers_on_device, chance = self.inputs[n]
        numbers_on_device.copy_(numbers, non_blocking=True)
        if self.config.temperature > 0:
            seeds = [job.seed for job in jobs]
            chance.copy_(draws(seeds, limits, self.W, self.config))
        self.graphs.run(f"read {n}", lambda: self._read(numbers_on_device, chance))

    def _read(self, numbers: Tensor, chance: Tensor) -> None:
        """Begin the searches that the rows of `_fill` describe."""
        at, lengths, limit = numbers[:, :3].unbind(1)
        at = at.long()
        ids = numbers[:, 3 : 3 + self.S]
        prefix = numbers[:, 3 + self.S :]
        self.state.read(at, ids.contiguous(), lengths.contiguous())
        fresh = replace(
            self.fresh.repeat(len(at)), limit=limit.long(), prefix=prefix.long(), chance=chance
        )
        self.beams.put(at, fresh)
        self.tokens.view(self.B, -1).index_fill_(0, at, self.pad)

    def _steps(self, count: int) -> None:
        for _ in range(count):
            self._step()
        self._make_report(out=self.report)

    def _make_report(self, out: Tensor | None) -> Tensor:
        """Return all that the CPU needs to know, one row of int32 for each place.

        It is one tensor so that a single copy brings it to the CPU, where calls of torch would
        compete for Python's interpreter lock with the threads of a server.
        """
        ended = self.beams.ended
        parts = (
            self.beams.alive().int(),
            self.beams.margin.view(torch.int32),
            ended.score.view(torch.int32),
            ended.tokens.int(),
            ended.log_probs.view(torch.int32),
        )
        return torch.cat([part.view(self.B, -1) for part in parts], dim=1, out=out)

    def _hypotheses(self, rows: Array, token_scores: bool) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of each row of a report."""
        n = self.config.n_best
        # Behind whether the search goes on: margin, scores, tokens, log-probabilities.
        values = rows.view(np.float32)
        margins = np.repeat(values[:, 1:2], n, axis=1)
        scores = values[:, 2 : 2 + n]
        tokens = rows[:, 2 + n : 2 + n + n * self.W].reshape(-1, n, self.W)
        log_probs = values[:, 2 + n + n * self.W :].reshape(-1, n, self.W)
        return as_hypotheses(tokens, log_probs, scores, margins, token_scores)

    def _step(self) -> None:
        """Extend all hypotheses by one token. Graphs need all tensors to be updated in place."""
        logits, _ = self.model.decode(self.tokens[:, None], self.state)  # type: ignore[arg-type]
        logits = logits[:, 0]  # (R, V)
        ancestors = self.state.ancestors
        if fits(self.config):
            picks = pick(logits, self.beams, self.config)
            settle(self.beams, picks, self.tokens, ancestors, self.config, pad=self.pad)
            return

        # The kernels do not support this search: use the plain functions.
        lengths = self.beams.length.repeat_interleave(
            self.config.width, output_size=len(self.tokens)
        )
        at = lengths[:, None]
        logits[:, -1] = -torch.inf  # padding is never generated
        log_probs = F.log_softmax(logits.float(), dim=-1)
        moved, rows, tokens = advance(self.beams, log_probs, self.config)
        self.beams.assign(moved)
        self.tokens.copy_(tokens)
        ancestors.copy_(ancestors[rows].where(self.columns < at, rows[:, None].int()))


def _pad(rows: Sequence[Sequence[int]], filler: int, table: Array) -> None:
    """Write rows of ids into a table and fill it up with `filler`."""
    table[:] = filler
    if not any(rows):
        return
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    is_filled = np.arange(table.shape[1]) < lengths[:, None]
    table[is_filled] = np.fromiter(chain.from_iterable(rows), np.int32)
