"""Prefetched batches arrive unchanged, and Python does not run far ahead of a GPU."""

import time
from types import SimpleNamespace

import pytest
import torch

from transduce.kernels.tiles import tiled
from transduce.model import Tokens
from transduce.training import prefetch
from transduce.training.prefetch import Prefetcher, send_together


def test_a_batch_sent_as_one_tensor_is_the_same_batch():
    source = Tokens.packed([[[5, 6, 0], [7, 0]]], pad=9, width=8)
    target = Tokens.packed([[[4, 0], [3, 2, 1, 0]]], pad=9, width=16)
    sent = []
    arrived = send_together(
        tiled(source, target), lambda numbers: sent.append(numbers) or numbers.clone()
    )
    assert len(sent) == 1
    for side, before in zip(arrived, tiled(source, target), strict=True):
        for ours, theirs in zip(side.tensors(), before.tensors(), strict=True):
            assert ours.dtype == torch.int32
            assert torch.equal(ours, theirs)


class Clock:
    """A fake CUDA event on a GPU that finishes everything at once."""

    def __init__(self, *, enable_timing, blocking):
        assert blocking  # or Python would take a core to wait

    def record(self, stream):
        self.time = time.perf_counter()

    def synchronize(self):
        pass

    def query(self):
        return True

    def elapsed_time(self, later):
        return 1e3 * (later.time - self.time) if hasattr(later, "time") else 0.0


def on_a_gpu(monkeypatch, event):
    monkeypatch.setattr(torch.cuda, "Event", event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    return Prefetcher(None, SimpleNamespace(device=torch.device("cuda")), 1, first_step=1)


@pytest.mark.parametrize("busy", [False, True])
def test_waiting_for_data_counts_only_while_the_gpu_is_idle(busy, monkeypatch):
    class Busy(Clock):
        def elapsed_time(self, later):
            return 0.0  # there was always a step to do

    monkeypatch.setattr(Prefetcher, "_prepare", lambda self, step: time.sleep(0.02) or step)
    inputs, waited = on_a_gpu(monkeypatch, Busy if busy else Clock), 0.0
    for step in inputs:
        waited += inputs.idle_seconds
        if step == 12:
            break
    inputs.close()
    assert waited == 0 if busy else 0.1 < waited < 0.3


def test_only_a_few_launched_steps_are_unfinished(monkeypatch):
    """Signals are handled between steps: hundreds of launched steps would delay them by seconds."""
    done, launched = [], []

    class Event(Clock):
        def record(self, stream):
            self.step = len(launched)

        def synchronize(self):
            done.append(self.step)

    monkeypatch.setattr(Prefetcher, "_prepare", lambda self, step: step)
    inputs = on_a_gpu(monkeypatch, Event)
    for step in inputs:
        assert len(launched) - len(done) <= prefetch.AHEAD
        launched.append(step)
        if step == 20:
            break
    inputs.close()
    assert done == list(range(1, len(done) + 1))
    assert len(done) >= 20 - prefetch.AHEAD - 1
