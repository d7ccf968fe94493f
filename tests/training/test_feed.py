"""What is fed arrives as it was, and Python does not run far ahead of a GPU."""

from types import SimpleNamespace

import torch

from transduce.model import Tokens, tiled
from transduce.training import feed
from transduce.training.feed import Feed, in_one_piece


def test_a_batch_sent_in_one_piece_is_the_same_batch():
    source = Tokens.packed([[[5, 6, 0], [7, 0]]], pad=9, width=8)
    target = Tokens.packed([[[4, 0], [3, 2, 1, 0]]], pad=9, width=16)
    sent = []
    arrived = in_one_piece(tiled(source, target), lambda numbers: sent.append(numbers) or numbers.clone())
    assert len(sent) == 1
    for side, before in zip(arrived, tiled(source, target), strict=True):
        for ours, theirs in zip(side.tensors(), before.tensors(), strict=True):
            assert ours.dtype == torch.int32
            assert torch.equal(ours, theirs)


def test_no_more_than_a_few_steps_are_launched_and_not_done(monkeypatch):
    """A signal is heeded between steps: with hundreds of them on their way to a GPU it would come seconds late."""
    done, launched = [], []

    class Event:
        def __init__(self, *, blocking):
            assert blocking  # or Python would take a core to wait

        def record(self, stream):
            self.step = len(launched)

        def synchronize(self):
            done.append(self.step)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(Feed, "_input", lambda self, step: step)
    inputs = Feed(None, SimpleNamespace(device=torch.device("cuda")), 1, first_step=1)
    for step in inputs:
        assert len(launched) - len(done) <= feed.AHEAD
        launched.append(step)
        if step == 20:
            break
    inputs.close()
    assert done == list(range(1, len(done) + 1))
    assert len(done) >= 20 - feed.AHEAD - 1
