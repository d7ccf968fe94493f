"""Batches ahead of time: a thread packs the next steps and sends them to the device while this one is computed.

On a GPU Python only launches steps. It may be a few steps ahead, so that the GPU never waits, but no more: a signal is
heeded when those under way are done.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.data.batches import Batch
from transduce.data.sampler import Sampler
from transduce.kernels.tiles import tiled
from transduce.model import Tokens
from transduce.training.distributed import World
from transduce.training.step import MicroBatch

AHEAD = 4  # steps, packed and waiting; on a GPU also launched and not done


@dataclass(frozen=True)
class StepInput:
    """What one rank learns from in one step; the counts are those of all ranks."""

    step: int
    micro_batches: list[MicroBatch]
    source_tokens: int
    target_tokens: int


class Prefetcher:
    """The inputs of a rank from a step on, each step divided into `micro_batches` parts on every rank."""

    def __init__(self, plan: Sampler, world: World, micro_batches: int, first_step: int) -> None:
        self._plan, self._world, self._parts = plan, world, micro_batches
        self._queue: queue.Queue[StepInput | BaseException] = queue.Queue(maxsize=AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(first_step,), daemon=True, name="feed"
        )
        self._thread.start()
        # Seconds that a step stood still for its data: the last one, on a GPU the last that is
        # done.
        self.waited = 0.0

    def __iter__(self) -> Iterator[StepInput]:
        cuda = self._world.device.type == "cuda"
        # Seconds for data, and the step's ends.
        under_way = deque[tuple[float, torch.cuda.Event, torch.cuda.Event]]()
        stood_still = 0.0
        while True:
            start = time.perf_counter()
            item = self._queue.get()
            waited = time.perf_counter() - start
            if isinstance(item, BaseException):
                raise item
            self.waited = stood_still if cuda else waited
            begin = self._mark() if cuda else None
            yield item
            if begin:
                under_way.append((waited, begin, self._mark()))
                if len(under_way) > AHEAD:
                    _, _, end = under_way.popleft()
                    end.synchronize()
                    # While Python waited, the GPU may have had work: it stood still from the end of one step on.
                    waited, begin, _ = under_way[0]
                    stood_still = (
                        min(waited, end.elapsed_time(begin) / 1e3) if begin.query() else 0.0
                    )

    def _mark(self) -> torch.cuda.Event:
        """An event that the GPU comes to after all that was launched so far."""
        event = torch.cuda.Event(enable_timing=True, blocking=True)
        event.record(torch.cuda.current_stream(self._world.device))
        return event

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        while self._thread.is_alive():
            try:
                self._queue.get(timeout=0.05)
            except queue.Empty:
                continue

    def _run(self, step: int) -> None:
        try:
            while not self._stopped.is_set():
                self._queue.put(self._input(step))
                step += 1
        except BaseException as error:  # handed to whoever waits for data
            self._queue.put(error)

    def _input(self, step: int) -> StepInput:
        """Steps count from 1; the plan's from 0."""
        rows = self._plan.pairs(step - 1)
        section = self._plan.section
        first, parts = self._world.rank * self._parts, self._world.size * self._parts
        batches = [self._plan.batch(step - 1, first + index, parts) for index in range(self._parts)]
        return StepInput(
            step,
            [to_tokens(batch, self._world.device) for batch in batches],
            int(section.source.lengths(rows).sum()),
            int(section.target.lengths(rows).sum()),
        )


def to_tokens(batch: Batch, device: torch.device) -> MicroBatch:
    """A batch of arrays as tensors on a device, for a GPU with the tiles of its attention."""
    given = torch.from_numpy
    source = Tokens(
        given(batch.source), given(batch.source_positions), given(batch.source_segments)
    )
    target = Tokens(
        given(batch.target), given(batch.target_positions), given(batch.target_segments)
    )
    if device.type != "cuda":
        return source, target

    source, target = tiled(source, target)
    return in_one_piece(
        (source, target), lambda numbers: numbers.pin_memory().to(device, non_blocking=True)
    )


def in_one_piece(batch: MicroBatch, send: Callable[[Tensor], Tensor]) -> MicroBatch:
    """The batch with all its tensors, of one type, sent as one: each would cost as much as all."""
    tensors = [tensor for side in batch for tensor in side.tensors()]
    sent = send(torch.cat([tensor.flatten() for tensor in tensors])).split(
        [tensor.numel() for tensor in tensors]
    )
    parts = iter(part.view(tensor.shape) for part, tensor in zip(sent, tensors, strict=True))
    source, target = (side.each(lambda _: next(parts)) for side in batch)
    return source, target
