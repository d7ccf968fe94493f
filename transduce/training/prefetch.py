"""Prefetching: a thread prepares the batches of the next steps while the current one is computed.

On a GPU, Python only launches steps. It may run a few steps ahead, so that the GPU never waits,
but no more: a signal is handled only after the steps that were launched.
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
from transduce.model import Tokens
from transduce.training.distributed import World
from transduce.training.step import MicroBatch

AHEAD = 4  # the most steps that are prepared and waiting; on a GPU also launched and unfinished


@dataclass(frozen=True)
class StepInput:
    """The micro-batches of one rank for one step. The token counts are those of all ranks."""

    step: int
    micro_batches: list[MicroBatch]
    source_tokens: int
    target_tokens: int


class Prefetcher:
    """Iterates over the step inputs of a rank, from `first_step` on, without end.

    Each rank splits its share of a step into `micro_batches` parts.
    """

    def __init__(self, sampler: Sampler, world: World, micro_batches: int, first_step: int) -> None:
        self._sampler = sampler
        self._world = world
        self._micro_batches = micro_batches
        self._queue: queue.Queue[StepInput | BaseException] = queue.Queue(maxsize=AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._fill_queue, args=(first_step,), daemon=True, name="prefetch"
        )
        self._thread.start()
        # Seconds for which the device was idle because of missing data: in the last step, or on a
        # GPU in the last finished step.
        self.idle_seconds = 0.0

    def __iter__(self) -> Iterator[StepInput]:
        on_gpu = self._world.device.type == "cuda"
        # The seconds each launched step waited for its data, and events at its begin and end.
        launched = deque[tuple[float, torch.cuda.Event, torch.cuda.Event]]()
        gpu_idle_seconds = 0.0
        while True:
            # Wait for the data of the next step.
            wait_start = time.perf_counter()
            item = self._queue.get()
            waited = time.perf_counter() - wait_start
            if isinstance(item, BaseException):
                raise item
            self.idle_seconds = gpu_idle_seconds if on_gpu else waited

            # The caller computes the step, or on a GPU launches it.
            begin = self._record_event() if on_gpu else None
            yield item
            if begin is None:
                continue
            launched.append((waited, begin, self._record_event()))
            if len(launched) <= AHEAD:
                continue

            # Enough steps are launched: wait until the oldest is done.
            _, _, end = launched.popleft()
            end.synchronize()

            # While Python waited for data, the GPU may still have been busy with earlier steps. It
            # was idle at most from the end of one step to the begin of the next.
            waited, next_begin, _ = launched[0]
            gpu_idle_seconds = 0.0
            if next_begin.query():
                gpu_idle_seconds = min(waited, end.elapsed_time(next_begin) / 1e3)

    def close(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        # The thread may be waiting for space in the queue.
        while self._thread.is_alive():
            try:
                self._queue.get(timeout=0.05)
            except queue.Empty:
                continue

    def _record_event(self) -> torch.cuda.Event:
        """Return an event that the GPU reaches after everything launched so far."""
        event = torch.cuda.Event(enable_timing=True, blocking=True)
        event.record(torch.cuda.current_stream(self._world.device))
        return event

    def _fill_queue(self, step: int) -> None:
        try:
            while not self._stopped.is_set():
                self._queue.put(self._prepare(step))
                step += 1
        except BaseException as error:  # raised again where the data is consumed
            self._queue.put(error)

    def _prepare(self, step: int) -> StepInput:
        index = step - 1  # steps count from 1, the sampler's from 0
        first = self._world.rank * self._micro_batches
        parts = self._world.size * self._micro_batches
        batches = [
            self._sampler.batch(index, first + part, parts) for part in range(self._micro_batches)
        ]
        rows = self._sampler.pairs(index)
        section = self._sampler.section
        return StepInput(
            step,
            [to_tokens(batch, self._world.device) for batch in batches],
            source_tokens=int(section.source.lengths(rows).sum()),
            target_tokens=int(section.target.lengths(rows).sum()),
        )


def to_tokens(batch: Batch, device: torch.device) -> MicroBatch:
    """Convert a batch of arrays to tensors on a device; on a GPU with its attention tiles."""
    source = Tokens(
        torch.from_numpy(batch.source),
        torch.from_numpy(batch.source_positions),
        torch.from_numpy(batch.source_segments),
    )
    target = Tokens(
        torch.from_numpy(batch.target),
        torch.from_numpy(batch.target_positions),
        torch.from_numpy(batch.target_segments),
    )
    if device.type != "cuda":
        return source, target

    from transduce.kernels.tiles import tiled

    return send_together(
        tiled(source, target),
        lambda numbers: numbers.pin_memory().to(device, non_blocking=True),
    )


def send_together(batch: MicroBatch, send: Callable[[Tensor], Tensor]) -> MicroBatch:
    """Send all tensors of a batch, which have one type, as a single tensor.

    A transfer of one small tensor takes as long as that of all.
    """
    source, target = batch
    tensors = [*source.tensors(), *target.tensors()]
    joined = torch.cat([tensor.flatten() for tensor in tensors])
    pieces = send(joined).split([tensor.numel() for tensor in tensors])

    # Cut the sent tensor into the shapes it was made from, in the same order.
    shaped = zip(pieces, tensors, strict=True)
    arrived = iter([piece.view(tensor.shape) for piece, tensor in shaped])
    return source.each(lambda _: next(arrived)), target.each(lambda _: next(arrived))
